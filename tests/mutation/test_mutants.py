"""The mistakes that are made, and how the explained ones are listed."""

from __future__ import annotations

from types import FunctionType

import pytest

from tests.mutation.__main__ import DECIDERS, EQUIVALENT, ROOT, read_explained
from tests.mutation.mutants import mutants_of

SOURCE = """
TABLE: Final = {1: 2, 3: 4}

def fits(sizes, limit=5):
    'a text'
    return sum(size for size in sizes if size > 0) < limit and not any(sizes)

class Picker:
    def pick(self, found):
        def last(one: int | None = 7) -> int | None:
            return one
        found.append(1)
        return found[1:] if found else f'{1 + 1}'
"""
MISTAKES = [
    "TABLE: {1, 3} → {3: 4}",
    "TABLE: {1, 3} → {1: 2}",
    "TABLE: 1 → 2",
    "TABLE: 3 → 4",
    "TABLE: 2 → 3",
    "TABLE: 4 → 5",
    "fits: sum((size for size in sizes if size > 0)) < limit and (not any(sizes)) → "
    "sum((size for size in sizes if size > 0)) < limit or not any(sizes)",
    "fits: sum((size for size in sizes if size > 0)) < limit → sum((size for size in sizes if size > 0)) <= limit",
    "fits: if size > 0 → no if",
    "fits: size > 0 → size >= 0",
    "fits: 0 → 1",
    "fits: not any(sizes) → any(sizes)",
    "fits: any(sizes) → all(sizes)",
    "Picker.pick: 7 → 8",
    "Picker.pick: found.append(1) → False and found.append(1)",
    "Picker.pick: 1 → 2",
    "Picker.pick: found[1:] if found else f'{1 + 1}' → found[1:] if not found else f'{1 + 1}'",
    "Picker.pick: 1: → :",
    "Picker.pick: 1 → 2 (2)",
]


def test_mistakes_are_made_in_what_is_executed() -> None:
    assert [str(mutant) for mutant in mutants_of(SOURCE, "picker.py")] == MISTAKES


def test_a_mutant_is_the_function_with_its_mistake() -> None:
    (mutant,) = (one for one in mutants_of(SOURCE, "picker.py") if one.after.endswith("<= limit"))
    assert mutant.is_function
    assert mutant.line == 6
    assert FunctionType(mutant.code, {})([0], 0)
    (row,) = (one for one in mutants_of(SOURCE, "picker.py") if one.after == "{1: 2}")
    assert not row.is_function
    assert eval(row.code) == {1: 2}


def test_reasons_are_read_for_each_mutant_of_each_module() -> None:
    first = "a.py\n    f: 1 → 2\n        It is\n        the same.\n    g: 2 → 3\n"
    text = f"# head\n\n{first}b.py\n    f: 1 → 2\n        So.\n"
    assert read_explained(text) == {
        "a.py": {"f: 1 → 2": "It is the same.", "g: 2 → 3": ""},
        "b.py": {"f: 1 → 2": "So."},
    }


@pytest.mark.parametrize("path", DECIDERS)
def test_each_module_that_decides_exists_with_its_tests(path: str) -> None:
    assert all((ROOT / one).is_file() for one in (path, *DECIDERS[path]))


def test_only_mutants_of_modules_that_decide_are_explained() -> None:
    explained = read_explained(EQUIVALENT.read_text(encoding="utf-8"))
    assert explained.keys() <= DECIDERS.keys()
    assert all(reason for mutants in explained.values() for reason in mutants.values())
