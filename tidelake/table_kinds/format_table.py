"""The public class of a format table: scanned and written like any other table, but without snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, TypeAlias

import pyarrow as pa

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.frames.incoming import Rows, incoming_rows, stream_closed
from tidelake.scan import Scan, projection
from tidelake.storage.base.arguments import checked
from tidelake.storage.kinds.format_tables.definition import FORMAT_TABLE, no_ordinary_table
from tidelake.storage.kinds.format_tables.format_table_scan import scan_format_table
from tidelake.storage.kinds.format_tables.partition_directories import list_partitions
from tidelake.storage.kinds.format_tables.write import FormatTableWriter
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.split import Split
from tidelake.storage.write.memory_budget import MemoryBudget
from tidelake.table import Table
from tidelake.writer import Writer

Read: TypeAlias = Callable[[Sequence[str], Predicate | None], Iterator[pa.RecordBatch]]


def _refused(name: str) -> Callable[..., Any]:
    def refuse(self: FormatTable, *_: object, **__: object) -> Any:
        raise no_ordinary_table(f"{self.name}.{name}(): {self.name}", self.kind)

    return refuse


class FormatTable(Table):
    """A folder of files. A read returns the current content of the folder; earlier states are not kept."""

    kind: ClassVar[str] = FORMAT_TABLE

    def scan(
        self,
        *,
        columns: Sequence[str] | None = None,
        filter: Predicate | str | Any = None,
        limit: int | None = None,
        **arguments: Any,
    ) -> Scan:
        """Read the table. Other arguments than these are refused.

        columns: as in `Table.scan`
        filter: as in `Table.scan`
        limit: as in `Table.scan`
        """
        if named := [name for name, value in arguments.items() if value is not None]:
            raise BadInput(
                f"{self.name} has no snapshots, and can only be read in its current state; leave out {named[0]}"
            )
        if isinstance(columns, str):
            raise BadInput(f"scan(columns={columns!r}): columns is a list of names")
        names, predicate = projection(self.schema, columns, filter)
        found = FormatScan(self._context, names, predicate, self._read)
        return found if limit is None else found.limit(limit)

    def _read(self, columns: Sequence[str], predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        return scan_format_table(self._context, columns, predicate)

    @checked
    def partitions(self) -> list[dict[str, Any]]:
        """Return column -> value of each partition directory; [{}] for a table without partition columns."""
        keys = self.partition_by
        found = list_partitions(self._context)
        return [dict(zip(keys, (value.as_py() for value in p.values), strict=True)) for p in found]

    def writer(
        self,
        *,
        commit_user: str | None = None,
        memory: MemoryBudget | None = None,
        overwrite: bool | Mapping[str, Any] | None = None,
    ) -> Writer:
        """Open a writer.

        overwrite: each commit replaces rows instead of adding some. True: all rows, or in a partitioned table those of
            the written partitions. {"day": "2026-05-01"}: the partitions with these values; all written rows must be in
            them.
        memory: has no effect, as rows are written at once.
        commit_user: is refused, as replays are not recognized.
        """
        if commit_user is not None:
            raise BadInput(f"{self.name} is a format table: its commits can't be recognised; leave out commit_user")
        return FormatTableBatchWriter(self._context, overwrite)

    def snapshots(self) -> list[Snapshot]:
        """Return an empty list: a format table has no snapshots."""
        return []

    def tags(self) -> dict[str, Snapshot]:
        """Return an empty mapping: a format table has no tags."""
        return {}

    def branches(self) -> list[str]:
        """Return an empty list: a format table has no branches."""
        return []

    def _check_changeable(self, what: str) -> None:
        raise no_ordinary_table(self.name, self.kind)


_SNAPSHOT_METHODS: Final = (
    *("changes", "follow", "follower", "compact", "rewrite_file_index", "expire", "truncate", "delete", "update"),
    *("upsert", "merge", "bootstrap"),
    *("update_columns", "create_tag", "replace_tag", "rename_tag", "delete_tag", "expire_tags", "create_branch"),
    *("delete_branch", "rename_branch", "fast_forward", "merge_branch", "rollback", "clean_orphans", "purge"),
    *("expire_partitions", "mark_done", "analyze", "statistics", "remove_missing_files", "remove_missing_manifests"),
    *("compact_manifests", "repair_earliest_snapshot", "publish_iceberg_metadata"),
)
for _name in _SNAPSHOT_METHODS:
    setattr(FormatTable, _name, _refused(_name))


class FormatScan(Scan):
    """A read of a format table as a whole. It has no splits. The folder is listed at each read."""

    has_splits = False

    def __init__(
        self, context: TableContext, columns: tuple[str, ...], predicate: Predicate | None, read: Read
    ) -> None:
        super().__init__(context, None, columns, predicate)
        self._read = read

    @property
    def schema(self) -> pa.Schema:
        whole = self._context.schema.arrow
        return pa.schema([whole.field(name) for name in self._columns])

    def _planned_splits(self, predicate: Predicate | None) -> list[Split]:
        raise UnsupportedFeature(
            f"splits of {self._context.name}",
            "a table without snapshots can only be read as a whole",
            "Call to_batches() or to_arrow() without splits",
        )

    def _batches(self, splits: Sequence[Split] | None) -> Iterator[pa.RecordBatch]:
        if splits is not None:
            self.splits()  # raises
        return self._read(self._columns, self._predicate)


class FormatTableBatchWriter(Writer):
    """Writes rows to files. Leaving the `with` block drops uncommitted rows."""

    def __init__(self, context: TableContext, overwrite: bool | Mapping[str, Any] | None) -> None:
        self._context, self._table_name = context, context.name
        self._files = FormatTableWriter(context, overwrite)

    @property
    def commit_user(self) -> str:
        """An empty text: a format table has no commit users."""
        return ""

    def write(self, rows: Rows) -> None:
        """Write rows: columns by name, in any order.

        rows: as in `Writer.write`

        Raises BadInput if the rows don't fit the table or its format. If rows of one partition were refused after
        others were written, all uncommitted rows are dropped.
        """
        found = incoming_rows(rows, self._context.schema.arrow, self._table_name)
        with stream_closed(found, rows):
            for batch in found.to_batches() if isinstance(found, pa.Table) else found:
                self._files.write(batch)
                self._has_rows |= batch.num_rows > 0

    @checked
    def commit(
        self,
        identifier: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> int | None:
        """Make the files visible, one after the other. Returns None, as there is no snapshot.

        It takes no arguments, as a format table can't store them.
        """
        if (identifier, properties, watermark) != (None, None, None):
            raise BadInput(
                "commit() of a format table takes no arguments, as it has no snapshot to store them in; leave them out"
            )
        self._has_rows = False  # if it fails, the caller knows
        self._files.commit()
        return None

    def close(self) -> None:
        """Drop uncommitted rows. Calling it again has no effect."""
        self._has_rows = False
        self._files.close()
