"""What an index is asked for each condition, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyroaring import BitMap

import tidelake
from tests.storage.model.snapshots.tables import data_file
from tidelake import col
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, parse_type
from tidelake.storage.read.predicate import ArrowCondition, Not, Predicate
from tidelake.storage.read.skipping import file_index_predicate
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate

TYPES = {
    "i": "INT",
    "d": "DOUBLE",
    "s": "STRING",
    "t": "TIMESTAMP(9)",
    "u": "TIMESTAMP(6)",
    "m": "MAP<STRING, TIMESTAMP(9)>",
    "n": "MAP<STRING, INT>",
    "r": "ROW<f STRING>",
}
NAN = float("nan")


@dataclass
class FakeIndex:
    """An index of any column, which notes what it is asked. answer: of each question."""

    asked: list[str]
    answer: BitMap | None = field(default_factory=lambda: BitMap([1]))

    def any_of(self, values: pa.Array) -> BitMap | None:
        return self._ask("any of", *values.to_pylist())

    def none_of(self, values: pa.Array) -> BitMap | None:
        return self._ask("none of", *values.to_pylist())

    def compare(self, operator: str, value: pa.Array) -> BitMap | None:
        return self._ask(operator, *value.to_pylist())

    def is_null(self) -> BitMap | None:
        return self._ask("null")

    def is_not_null(self) -> BitMap | None:
        return self._ask("not null")

    def _ask(self, *words: Any) -> BitMap | None:
        self.asked.append(" ".join(word.hex() if isinstance(word, bytes) else str(word) for word in words))
        return self.answer


@dataclass
class FakeIndexes:
    """The indexes of a file: of each column the same ones."""

    indexes: list[FakeIndex]
    path: str = "a.parquet.index"

    def of_column(self, indexed: object) -> Iterator[FakeIndex]:
        return iter(self.indexes)


def arrow_condition(implied: Predicate | None) -> Predicate:
    """A condition that Arrow evaluates. implied: what is known of the rows that fulfil it."""
    return ArrowCondition(pc.field("i") == 5, frozenset({"i"}), implied)


@pytest.fixture(scope="module")
def context() -> TableContext:
    catalog = tidelake.open_catalog(f"memory://{uuid4().hex}/lake")
    catalog.create_database("db")
    fields = [DataField(number, name, parse_type(text)) for number, (name, text) in enumerate(TYPES.items())]
    return catalog.create_table("db.t", fields, options={"bucket": "-1"}).context


def answer(
    context: TableContext,
    condition: Predicate | None,
    indexes: FakeIndexes,
    monkeypatch: pytest.MonkeyPatch,
    *,
    row_count: int = 9,
) -> BitMap | None:
    @contextmanager
    def file_indexes(*_: object) -> Iterator[FakeIndexes]:
        yield indexes

    monkeypatch.setattr(file_index_predicate, "file_indexes", file_indexes)
    monkeypatch.setattr(file_index_predicate, "may_have_indexes", lambda *_, **__: True)
    return FileIndexPredicate(context, condition).selected_rows(data_file("a.parquet", rows=row_count), "a.parquet")


NOTHING = "all rows"
NO_ROW = "no row"


@pytest.mark.parametrize(
    ("condition", "asked"),
    [
        (col("i") == 5, "any of 5"),
        (col("i") != 5, "none of 5"),
        (col("i") < 5, "< 5"),
        (col("i") <= 5, "<= 5"),
        (col("i") > 5, "> 5"),
        (col("i") >= 5, ">= 5"),
        (~(col("i") == 5), "none of 5"),
        (~(col("i") != 5), "any of 5"),
        (~(col("i") < 5), ">= 5"),
        (~(col("i") <= 5), "> 5"),
        (~(col("i") > 5), "<= 5"),
        (~(col("i") >= 5), "< 5"),
        (col("i").is_null(), "null"),
        (col("i").is_not_null(), "not null"),
        (~col("i").is_null(), "not null"),
        (col("i").is_in([3, 4]), "any of 3 4"),
        (~col("i").is_in([3, 4]), "none of 3 4"),
        (col("i").is_in([]), NO_ROW),
        (~col("i").is_in([]), NOTHING),
        (col("d") == 1.5, "any of 1.5"),
        (~(col("d") == 1.5), "none of 1.5"),
        (~(col("d") != 1.5), "any of 1.5"),
        (col("d") < 1.5, "< 1.5"),
        (~(col("d") < 1.5), NOTHING),
        (~(col("d") >= 1.5), NOTHING),
        (col("d") == 0.0, "any of 0.0 -0.0"),
        (col("d") != 0.0, "none of 0.0 -0.0"),
        (col("d") < 0.0, "< -0.0"),
        (col("d") >= 0.0, ">= -0.0"),
        (col("d") <= -0.0, "<= 0.0"),
        (col("d") > -0.0, "> 0.0"),
        (col("d") == NAN, NO_ROW),
        (col("d") < NAN, NO_ROW),
        (col("d") != NAN, NOTHING),
        (col("d").is_nan(), "any of nan"),
        (~col("d").is_nan(), NOTHING),
        (col("s").starts_with("ab"), f">= {b'ab'.hex()}, < {b'ac'.hex()}"),
        (col("s").starts_with("b"), f">= {b'b'.hex()}, < {b'c'.hex()}"),
        (col("s").starts_with(""), "not null"),
        (~col("s").starts_with("ab"), NOTHING),
        (col("s").like("ab%"), f">= {b'ab'.hex()}, < {b'ac'.hex()}"),
        (~col("s").like("ab%"), NOTHING),
        (col("s").like("%ab"), NOTHING),
        (replace(col("r").like("ab%"), path=("f",)), NOTHING),
        (arrow_condition(col("i") == 5), "any of 5"),
        (Not(arrow_condition(col("i") == 5)), NOTHING),
        (arrow_condition(None), NOTHING),
        (col("t") < "2024-01-01", "<= 2024-01-01 00:00:00"),
        (col("t") <= "2024-01-01", "<= 2024-01-01 00:00:00"),
        (col("t") > "2024-01-01", ">= 2024-01-01 00:00:00"),
        (col("t") == "2024-01-01", "any of 2024-01-01 00:00:00"),
        (col("t") != "2024-01-01", NOTHING),
        (~col("t").is_in(["2024-01-01"]), NOTHING),
        (col("t").is_in(["2024-01-01"]), "any of 2024-01-01 00:00:00"),
        (col("u") < "2024-01-01", "< 2024-01-01 00:00:00"),
        (~col("u").is_in(["2024-01-01"]), "none of 2024-01-01 00:00:00"),
        (col("m")["a"] < "2024-01-01", "<= 2024-01-01 00:00:00"),
        (col("n")["a"] < 5, "< 5"),
        ((col("i") == 5) & (col("d") > 1.0), "any of 5, > 1.0"),
        ((col("i") == 5) & ~col("d").is_nan(), "any of 5"),
        ((col("i") == 5) | (col("d") > 1.0), "any of 5, > 1.0"),
        ((col("i") == 5) | ~col("d").is_nan(), NOTHING),
        (~((col("i") == 5) | ~col("d").is_nan()), "none of 5, any of nan"),
        (~((col("i") == 5) & col("d").is_nan()), NOTHING),
        ((col("d") != NAN) & ~col("d").is_nan(), NOTHING),
    ],
    ids=str,
)
def test_a_condition_asks_the_index(
    condition: Predicate, asked: str, context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A time finer than a microsecond shares its number in an index with others, so its neighbours must be read."""
    index = FakeIndex([])
    found = answer(context, condition, FakeIndexes([index]), monkeypatch)
    if asked == NOTHING:
        assert (index.asked, found) == ([], None)
    elif asked == NO_ROW:
        assert (index.asked, found) == ([], BitMap())
    else:
        assert (", ".join(index.asked), found) == (asked, BitMap([1]))


def test_all_indexes_of_a_column_are_asked_until_no_row_is_left(
    context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    unable, some, other = FakeIndex(asked, None), FakeIndex(asked, BitMap([1, 2])), FakeIndex(asked, BitMap([2, 3]))
    none = FakeIndex(asked, BitMap())
    assert answer(context, col("i") == 5, FakeIndexes([unable, some, other]), monkeypatch) == BitMap([2])
    assert len(asked) == 3
    assert answer(context, col("i") == 5, FakeIndexes([some, none, other, other]), monkeypatch) == BitMap()
    assert len(asked) == 5


@pytest.mark.parametrize(("row_count", "is_asked"), [(2**31 - 1, True), (2**31, False)])
def test_positions_of_indexes_have_32_bits(
    row_count: int, is_asked: bool, context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = FakeIndex([])
    answer(context, col("i") == 5, FakeIndexes([index]), monkeypatch, row_count=row_count)
    assert bool(index.asked) is is_asked


def test_without_a_condition_or_the_option_no_index_is_asked(
    context: TableContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = FakeIndex([])
    off = context.with_options({"file-index.read.enabled": "false"})
    assert answer(off, col("i") == 5, FakeIndexes([index]), monkeypatch) is None
    assert answer(context, None, FakeIndexes([index]), monkeypatch) is None
    assert index.asked == []
