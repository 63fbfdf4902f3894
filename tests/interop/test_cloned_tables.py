"""A clone of a golden table: Java and Tidelake read the same rows from it as from the original."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

import tidelake
from tests.support.cases import GoldenTable, golden_tables
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tidelake.storage.maintenance.verify.inspection import verify

CLONE = "other.clone"


@pytest.mark.sampled
@pytest.mark.parametrize("golden", golden_tables(), ids=lambda table: table.id)
def test_a_clone_contains_the_rows_of_the_original(
    golden: GoldenTable, java_oracle: JavaOracle, tmp_path: Path
) -> None:
    lake, clones = golden.unpack(tmp_path), tmp_path / "clones"
    source, target = tidelake.open_catalog(str(lake)).table(golden.identifier), tidelake.open_catalog(str(clones))
    target.create_database("other")
    try:
        clone = target.clone_table(source, CLONE)
    except tidelake.UnsupportedFeature:
        assert not target.list_tables("other")
        return
    assert clone.context.schema == source.context.schema
    assert verify(clone.context, deep=True) == verify(source.context, deep=True) == []
    assert java_rows(java_oracle, clones, CLONE) == java_rows(java_oracle, lake, golden.identifier)
    assert our_rows(clone) == our_rows(source)


def java_rows(java: JavaOracle, warehouse: Path, name: str) -> list[str]:
    return rows_or_refusal(lambda: java.read(warehouse, name), Refused)


def our_rows(table: tidelake.Table) -> list[str]:
    return rows_or_refusal(lambda: table.scan().to_arrow().to_pylist(), tidelake.UnsupportedFeature)


def rows_or_refusal(read: Callable[[], Iterable[object]], refusal: type[Exception]) -> list[str]:
    """Some golden tables can't be read whole by one of us: their clones can't either."""
    try:
        return sorted(map(str, read()))
    except refusal as error:
        return [type(error).__name__]
