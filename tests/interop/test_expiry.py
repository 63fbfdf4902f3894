"""Tidelake expires the same files as Java, and each reads the table after the expiry of the other."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.cases import GOLDEN_DATABASE, GoldenTable, golden_tables
from tests.support.java_oracle import JavaOracle
from tidelake.storage.commit.expire.expire_now import ExpiryResult, expire_now
from tidelake.storage.maintenance.verify import verify
from tidelake.storage.model.table import TableContext

HISTORIES = [table for table in golden_tables() if table.writer == "java"]
STAY = 2


def files_below(directory: Path) -> set[str]:
    """But for hints of latest ids, which we need not touch."""
    paths = {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}
    return {path for path in paths if not path.startswith(("expected", "steps", "README"))}


def copies(table: GoldenTable, folder: Path) -> tuple[Path, Path]:
    return table.unpack(folder / "ours"), table.unpack(folder / "javas")


def context(warehouse: Path, name: str, options: dict[str, str]) -> TableContext:
    found = tidelake.open_catalog(str(warehouse)).table(name).context
    return TableContext.open(found.io, found.location, found.name, options=options)


def expire(warehouse: Path, name: str, retained: dict[str, int]) -> ExpiryResult:
    """Nothing is too young to go. retained: options."""
    ages = {"snapshot.time-retained": "0 s", "changelog.time-retained": "0 s"}
    return expire_now(context(warehouse, name, {**ages, **{key: str(number) for key, number in retained.items()}}))


@pytest.mark.parametrize("table", [pytest.param(table, id=table.name) for table in HISTORIES])
def test_expiry_keeps_the_same_files_of_a_golden_table_as_java(
    table: GoldenTable, tmp_path: Path, java_oracle: JavaOracle
) -> None:
    ours, javas = copies(table, tmp_path)
    java_oracle.expire(javas, table.identifier, retain_max=STAY, retain_min=STAY)
    expire(ours, table.identifier, {"snapshot.num-retained.min": STAY, "snapshot.num-retained.max": STAY})
    root = Path(f"{GOLDEN_DATABASE}.db") / table.name
    assert files_below(ours / root) == files_below(javas / root)
    assert java_oracle.read(ours, table.identifier) == java_oracle.read(javas, table.identifier)


@pytest.mark.parametrize("table", [pytest.param(table, id=table.name) for table in HISTORIES])
def test_expiry_keeps_the_same_changelogs_as_java(table: GoldenTable, tmp_path: Path, java_oracle: JavaOracle) -> None:
    ours, javas = copies(table, tmp_path)
    most = STAY + 2
    flags = {"retain_max": STAY, "retain_min": STAY, "changelog_max": most, "changelog_min": STAY}
    java_oracle.command("expire", javas, table.identifier, **flags)
    expire(
        ours,
        table.identifier,
        {
            "snapshot.num-retained.min": STAY,
            "snapshot.num-retained.max": STAY,
            "changelog.num-retained.min": STAY,
            "changelog.num-retained.max": most,
        },
    )
    root = Path(f"{GOLDEN_DATABASE}.db") / table.name
    assert files_below(ours / root) == files_below(javas / root)
    assert verify(context(ours, table.identifier, {})) == []


def test_both_can_expire_alternately_and_read_the_table(tmp_path: Path, java_oracle: JavaOracle) -> None:
    warehouse, name = tmp_path / "lake", "db.t"
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("db")
    columns = pa.schema([pa.field("k", pa.int32(), nullable=False), pa.field("v", pa.string())])
    table = catalog.create_table(name, columns, primary_key=["k"], options={"bucket": "2"})
    truth: dict[int, str] = {}
    for turn in range(6):
        rows = {k: f"{turn}.{k}" for k in range(turn, turn + 4)}
        truth |= rows
        if turn % 2:
            java_oracle.write(warehouse, name, [{"k": k, "v": v} for k, v in rows.items()], wait_compaction=True)
            java_oracle.expire(warehouse, name, retain_max=STAY, retain_min=STAY)
        else:
            with table.writer() as writer:
                writer.write(pa.table({"k": pa.array(rows, pa.int32()), "v": list(rows.values())}))
                writer.commit()
            expire(warehouse, name, {"snapshot.num-retained.min": STAY, "snapshot.num-retained.max": STAY})
        assert verify(table.context, deep=True) == []
        expected = sorted(truth.items())
        assert sorted((row["k"], row["v"]) for row in table.scan().to_arrow().to_pylist()) == expected
        assert sorted((row["k"], row["v"]) for row in java_oracle.read(warehouse, name)) == expected
    assert len(table.snapshots()) <= STAY + 1
