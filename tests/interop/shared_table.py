"""One table that Tidelake, Java and pypaimon share, and the naive model of its rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path

import pyarrow as pa

import tidelake
from tests.interop.naive_table import NaiveTable, Row
from tests.support.conformance import Outcome, record
from tests.support.expected import KIND_TEXT, Json, changes_difference, difference, json_rows
from tests.support.java_oracle import JavaOracle
from tests.support.line_server import Refused
from tests.support.pypaimon import Pypaimon

KIND = "_VALUE_KIND"
NAME = "db.t"
_REFUSED = "nothing, but refuses"


class Reader(StrEnum):
    TIDELAKE = "Tidelake"
    JAVA = "Java"
    PYPAIMON = "pypaimon"
    RUST = "pypaimon-rust"


@dataclass
class SharedTable:
    """cannot: readers that read this table wrongly or not at all, at least at some time of its life, and why.

    failed: those of them that were seen to.
    """

    java: JavaOracle
    pypaimon: Pypaimon
    warehouse: Path
    model: NaiveTable
    cannot: Mapping[Reader, str] = field(default_factory=dict)
    failed: set[Reader] = field(default_factory=set)

    @property
    def ours(self) -> tidelake.Table:
        """The table under the newest schema, made by either side."""
        return tidelake.open_catalog(str(self.warehouse)).table(NAME)

    # ------------------------------------------------------------ writing

    def write(self, rows: pa.Table, *, user: str = "etl", identifier: int | None = None) -> int | None:
        """Tidelake's turn: one commit. rows: may have _VALUE_KIND."""
        with self.ours.writer(commit_user=user) as writer:
            writer.write(rows)
            snapshot_id = writer.commit(identifier)
        self.model.write(changes(rows))
        return snapshot_id

    def java_writes(self, rows: pa.Table, *, full: bool = False) -> None:
        """Java's turn. It compacts as it sees fit; full: everything it touches."""
        self.java.write(self.warehouse, NAME, changes(rows), commit_user="java", full=full, wait_compaction=True)
        self.model.write(changes(rows))

    def java_compacts(self, *, full: bool = False) -> None:
        try:
            self.java.compact(self.warehouse, NAME, full=full, commit_user="compactor")
        except Refused as e:
            if "nothing to compact" not in str(e):  # what the oracle says of append tables without small files
                raise

    # ------------------------------------------------------------ reading

    def check(self, readers: Iterable[Reader] = Reader) -> None:
        """Every reader sees exactly the rows of the model."""
        found = self.ours.scan().to_arrow()
        assert found.schema.names == self.model.columns
        assert (problem := difference(found, self.model.rows)) is None, f"Tidelake reads {problem}"
        for reader in readers:
            problem = self._problem(reader, found)
            self._record(reader, problem)
            if problem is not None and reader in self.cannot:
                self.failed.add(reader)
            else:
                assert problem is None, f"{reader} reads {problem}"

    def _record(self, reader: Reader, problem: str | None) -> None:
        outcome = Outcome.PASS
        if problem is not None:
            outcome = Outcome.REFUSED if problem.startswith(_REFUSED) else Outcome.DIFFERS
        reason = "" if problem is None else self.cannot.get(reader, "")
        record(reader, self.warehouse, NAME, outcome, reason=reason)

    def _problem(self, reader: Reader, found: pa.Table) -> str | None:
        try:
            return self._difference(reader, found)
        except Refused as e:
            return f"{_REFUSED}: {e}"

    def _difference(self, reader: Reader, found: pa.Table) -> str | None:
        match reader:
            case Reader.TIDELAKE:
                return None
            case Reader.JAVA:
                return difference(found, values(self.java.read(self.warehouse, NAME)))
            case Reader.PYPAIMON | Reader.RUST:
                rows = self.pypaimon.read(self.warehouse, NAME, native=reader is Reader.RUST)
                return difference(rows.select(self.model.columns), self.model.rows)

    def check_history(self) -> None:
        """Every snapshot there is, and the changes it made, are what Java reads and streams."""
        table = self.ours
        streamed = {
            number: [[row.pop("_kind"), *values([row])[0]] for row in rows]
            for number, rows in groupby(self.java.stream(self.warehouse, NAME), lambda row: row.pop("_snapshot"))
        }
        keys = [*table.primary_key, *(name for name in table.partition_by if name not in table.primary_key)]
        for snapshot in table.snapshots():
            rows = table.scan(snapshot=snapshot.id).to_arrow()
            problem = difference(rows, values(self.java.read(self.warehouse, NAME, snapshot=snapshot.id)))
            assert problem is None, f"snapshot {snapshot.id}: {problem}"
            batches = [batch.rows for batch in table.changes(start=snapshot.id, end=snapshot.id)]
            reported = pa.Table.from_batches(batches, pa.schema([*table.schema, pa.field(KIND, pa.int8(), False)]))
            problem = changes_difference(reported, streamed.get(snapshot.id, []), keys)
            assert problem is None, f"changes of snapshot {snapshot.id}: {problem}"


def changes(rows: pa.Table) -> list[Row]:
    """As the oracle's `write` and the model take them: `_kind` in place of _VALUE_KIND."""
    found = json_rows(rows)
    for row in found:
        row["_kind"] = KIND_TEXT[row.pop(KIND, 0)]
    return found


def values(rows: Iterable[Mapping[str, Json]]) -> list[list[Json]]:
    return [list(row.values()) for row in rows]
