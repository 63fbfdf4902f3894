"""A linked list with cheap insertions at its ends and gaps, and one ordered like Java's hash tables."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.storage.merge.values.hash_order import HashOrderedList
from tidelake.storage.merge.values.linked_list import LinkedList

Item = tuple[int, int]  # its name, and which of that name


def name_of(item: Item) -> int:
    return item[0]


@given(st.data())
def test_a_linked_list_equals_a_python_list(data: st.DataObject) -> None:
    line, known = LinkedList(name_of), list[Item]()
    what = ["append", "append", "prepend", "replace", "take", "take_all", "take_repeated", "pop"]
    for number, action in enumerate(data.draw(st.lists(st.sampled_from(what), max_size=40))):
        item = name, _ = data.draw(st.integers(0, 5)), number
        foremost = next((at for at, (other, _) in enumerate(known) if other == name), None)
        assert (name in line) is (foremost is not None)
        match action:
            case "append":
                line.append(item)
                known.append(item)
            case "prepend":
                line.prepend(item)
                known.insert(0, item)
            case "replace" if foremost is not None:
                line.replace(item)
                known[foremost] = item
                assert line[name] == item
            case "take" if foremost is not None:
                assert line.take(name) == known.pop(foremost)
            case "take_all":
                line.take_all(name)
                known = [other for other in known if other[0] != name]
            case "take_repeated":
                line.take_repeated()
                known = [other for at, other in enumerate(known) if other[0] not in dict(known[:at])]
            case "pop" if known:
                assert line.pop() == known.pop()
        assert len(line) == len(known)
        assert list(line) == known


def put(bins: list[list[int]], code: int) -> None:
    """`HashMap.put` of what isn't there: it grows afterwards."""
    bins[_bin(code, bins)].append(code)
    if sum(map(len, bins)) > 0.75 * len(bins):
        _grow(bins)


def compute_if_absent(bins: list[list[int]], code: int) -> None:
    """`HashMap.computeIfAbsent`: it grows before, and puts what is new in front of its bin."""
    if sum(map(len, bins)) > 0.75 * len(bins):
        _grow(bins)
    if code not in bins[_bin(code, bins)]:
        bins[_bin(code, bins)].insert(0, code)


def _bin(code: int, bins: list[list[int]]) -> int:
    return (code ^ code >> 16) % len(bins)


def _grow(bins: list[list[int]]) -> None:
    codes = [code for one in bins for code in one]
    bins[:] = [[] for _ in range(2 * len(bins))]
    for code in codes:
        bins[_bin(code, bins)].append(code)


@pytest.mark.parametrize("insert", [put, compute_if_absent], ids=lambda insert: insert.__name__)
@given(data=st.data())
def test_a_hash_list_equals_insertions_into_successive_java_tables(
    insert: Callable[[list[list[int]], int], None], data: st.DataObject
) -> None:
    """Java's hash tables are simulated with their bins. Hash codes represent the values."""
    line: HashOrderedList[int] = HashOrderedList(
        lambda code: code, lambda code: code, newest_first=insert is compute_if_absent
    )
    known: list[int] = []
    codes = st.integers(0, 40) | st.integers(0, 40).map(lambda n: n * 32) | st.integers(0, 5).map(lambda n: n << 16)
    for _ in range(data.draw(st.integers(0, 12), label="rows")):
        new = [code for code in data.draw(st.lists(codes, max_size=15, unique=True)) if code not in known]
        last, in_front = new[::2], new[1::2]
        for code in last:
            line.append(code)
        for code in reversed(in_front):
            line.prepend(code)
        bins: list[list[int]] = [[] for _ in range(16)]
        known = in_front + known + last
        for code in known:
            insert(bins, code)
        most = max(0, len(known) - 1) if insert is compute_if_absent else len(known)
        gone = set(data.draw(st.lists(st.sampled_from(known)) if known else st.just([]), label="removed"))
        if insert is compute_if_absent:
            gone.clear()  # such a table has no removals
        for code in gone:
            line.take(code)
        line.rebuild(most)
        known = [code for one in bins for code in one if code not in gone]
        assert line.in_order() == known
