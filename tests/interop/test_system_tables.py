"""The same commits of Tidelake and Java give the same rows in Java's system tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.interop.conftest import NewTable
from tests.interop.layouts import Layout, append, primary_key
from tests.interop.shared_table import NAME, SharedTable, changes
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.commit.commit_message import Committable
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio import open_file_io
from tidelake.storage.model.table import TableContext
from tidelake.storage.write.table_writer import TableWriter

USER: Final = "u"


class Hand(Protocol):
    """Who does the steps."""

    def write(self, identifier: int, rows: pa.Table, *, watermark: int | None = None) -> None: ...
    def overwrite(self, identifier: int, rows: pa.Table, partition: Mapping[str, str]) -> None: ...
    def truncate(self) -> None: ...


@dataclass
class OurHand:
    """One writer and one commit, for all steps."""

    context: TableContext

    def __post_init__(self) -> None:
        self.commit = TableCommit(self.context, USER)

    def write(self, identifier: int, rows: pa.Table, *, watermark: int | None = None) -> None:
        self.commit.commit(self._committable(identifier, rows, watermark))

    def overwrite(self, identifier: int, rows: pa.Table, partition: Mapping[str, str]) -> None:
        self.commit.overwrite(self._committable(identifier, rows), partition or None)

    def truncate(self) -> None:
        self.commit.truncate()

    def _committable(self, identifier: int, rows: pa.Table, watermark: int | None = None) -> Committable:
        writer = TableWriter(self.context)
        writer.write(rows)
        return Committable(identifier, writer.prepare_commit(), watermark)


@dataclass
class JavasHand:
    table: SharedTable

    def write(self, identifier: int, rows: pa.Table, *, watermark: int | None = None) -> None:
        self._step({"op": "write", "rows": changes(rows), "id": identifier, "watermark": watermark})

    def overwrite(self, identifier: int, rows: pa.Table, partition: Mapping[str, str]) -> None:
        self._step({"op": "write", "rows": changes(rows), "id": identifier, "overwrite": dict(partition)})

    def truncate(self) -> None:
        self._step({"op": "truncate"})

    def _step(self, step: Mapping[str, Any]) -> None:
        reported = {key: value for key, value in step.items() if value is not None}
        self.table.java.step(self.table.warehouse, NAME, {**reported, "user": USER})


# The system tables, and what of them may differ: names, sizes, times. Sequence numbers: Java begins at 0 again for an
# overwrite, and in every writer of an append table without buckets.
SYSTEM_TABLES: Final = {
    "snapshots": {"commit_time", "base_manifest_list", "delta_manifest_list", "changelog_manifest_list"},
    "files": {"file_path", "file_size_in_bytes", "creation_time", "min_sequence_number", "max_sequence_number"},
    "manifests": {"file_name", "file_size"},
    "partitions": {"file_size_in_bytes", "last_update_time"},
    "buckets": {"file_size_in_bytes", "last_update_time"},
}


def system_tables(table: SharedTable) -> dict[str, list[str]]:
    return {
        name: sorted(
            str({column: value for column, value in row.items() if column not in differing})
            for row in table.java.system(table.warehouse, NAME, name)
        )
        for name, differing in SYSTEM_TABLES.items()
    }


_VALUES: Final = ("int", "string", "timestamp_us")  # no floating point: which of the two zeros a bound has is no matter

LAYOUTS: Final = (
    primary_key("upserts", _VALUES, options={"write-only": "true"}),
    primary_key(
        "changelog of the input",
        _VALUES,
        options={"write-only": "true", "changelog-producer": "input", "bucket": "3"},
    ),
    primary_key("partitioned", _VALUES, partition=["boolean"], options={"write-only": "true", "bucket": "2"}),
    append("append", _VALUES),
    append("append, partitioned", _VALUES, ["boolean"]),
)


def steps(hand: Hand, layout: Layout) -> Iterator[str]:
    """A table's life. Yields the name of what was just done."""
    kinds = [0, 2, 3] * 4 if layout.key else None
    hand.write(1, layout.rows(range(20)), watermark=17)
    yield "first rows"
    hand.write(2, layout.rows(range(15, 27), kinds, turn=1), watermark=5)
    yield "more rows, an older watermark"
    hand.write(3, layout.rows([]))
    yield "nothing"
    if "boolean" in layout.partition:
        truth = layout.rows(range(40), turn=2)
        hand.overwrite(4, truth.filter(pc.field("boolean")), {"boolean": "true"})
        yield "one partition overwritten"
        hand.overwrite(5, layout.rows([0], turn=2), {})
        yield "overwritten where the rows are"
    else:
        hand.overwrite(4, layout.rows(range(3), turn=2), {})
        yield "overwritten"
    hand.truncate()
    yield "truncated"
    hand.write(6, layout.rows(range(5)))
    yield "rows again"


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.id)
def test_system_tables_of_the_same_commits_are_equal(layout: Layout, new_table: NewTable) -> None:
    seen: list[dict[str, dict[str, list[str]]]] = []
    for folder in ("we", "java"):
        table = new_table(
            layout.columns,
            primary_key=layout.key,
            partition_by=layout.partition,
            options=layout.options,
            folder=folder,
        )
        context = FileSystemCatalog(open_file_io("/"), str(table.warehouse)).load(NAME)
        hand: Hand = OurHand(context) if folder == "we" else JavasHand(table)
        seen.append({step: system_tables(table) for step in steps(hand, layout)})
    ours, javas = seen
    for step, tables in javas.items():
        for name, rows in tables.items():
            assert ours[step][name] == rows, f"{name} after {step}"
