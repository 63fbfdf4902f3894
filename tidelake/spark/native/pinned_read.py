"""The part of a read that Spark's own reader doesn't read, as the text of an option for the data source.

The driver divides the files of a read once. The data source plans in another process, and divides the same snapshot
under the same schema again. If the result differs, the read fails.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.scan import Scan
from tidelake.spark.native.native_files import FileKey, native_files, without_files
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.split import Split

PINNED_READ: Final = "pinned-read"
"""The name of the option. `tidelake.spark.read` makes its value."""


@dataclass(frozen=True)
class PinnedRead:
    """The part of a read for the data source.

    snapshot: None for a table without snapshots
    native: a digest of the files that Spark reads itself
    any_store: see `native_files`
    columns: of the read; they decide what Spark may read itself. None: it reads nothing itself.
    """

    schema_id: int
    snapshot: Snapshot | None
    columns: tuple[str, ...] | None = None
    any_store: bool = False
    native: str = ""

    @classmethod
    def of(cls, scan: Scan, files: Collection[FileKey], *, any_store: bool) -> PinnedRead:
        columns = tuple(scan.schema.names) if files else None
        return cls(scan.context.schema.id, scan.snapshot, columns, any_store, _digest(files))

    @classmethod
    def of_text(cls, text: str) -> PinnedRead:
        """Parse the option's value. Raises ValueError."""
        members = json.loads(text)
        try:
            snapshot, columns = members["snapshot"], members["columns"]
            return cls(
                int(members["schema"]),
                None if snapshot is None else Snapshot.from_members(snapshot, PINNED_READ),
                None if columns is None else tuple(columns),
                bool(members["any_store"]),
                str(members["native"]),
            )
        except (KeyError, TypeError):
            raise ValueError("only tidelake.spark.read sets this option; leave it out") from None

    def to_text(self) -> str:
        members = {
            "schema": self.schema_id,
            "snapshot": None if self.snapshot is None else self.snapshot.to_members(),
            "columns": None if self.columns is None else list(self.columns),
            "any_store": self.any_store,
            "native": self.native,
        }
        return json.dumps(members)

    def scan(self, context: TableContext) -> Scan:
        """Return a scan of all columns and all files, including those that Spark reads."""
        pinned = context.with_schema(context.schemas.get(self.schema_id))
        return Scan(pinned, self.snapshot, tuple(pinned.schema.names), None)

    def rest(self, context: TableContext, splits: Iterable[Split]) -> list[Split]:
        """Return the part of these splits that Spark does not read itself.

        splits: of this read, perhaps with conditions.
        """
        if self.columns is None:
            return list(splits)
        files = native_files(self.scan(context).select(self.columns), any_store=self.any_store)
        if _digest(files) != self.native:
            raise BadInput(
                f"{context.name}: the files of snapshot {self.snapshot and self.snapshot.id} are no longer divided as "
                "they were when the read began, because the options of the table or the version of the package "
                "changed. Call tidelake.spark.read again"
            )
        return without_files(splits, files)


def _digest(files: Iterable[FileKey]) -> str:
    known = hashlib.sha256()
    for partition, bucket, name in sorted(files):
        known.update(f"{partition.hex()} {bucket} {name}\n".encode())
    return known.hexdigest()
