"""Files of moved rows, stored with a table's snapshots. A checkpoint that changes the moved rows writes a new file.

The files are in `moved-rows/` of the table's directory. Orphan cleaners ignore this directory, and it is deleted with
the table. A file is written before the snapshot that names it, and never changed. Replaced files are kept for a while,
because the table may be rolled back.

    Arrow IPC, one row for each half of a key change
    _id, _exact, _old_key, _new_key    the key change
    _since_ms                          when its record was read; null for the half with the new key that came first
    _why_unknown                       why values of the row are unknown
    _unknown                           the fields with unknown values
    _is_kept                           whether the row's values are kept
    f0, f1, …                          the values, by the id of their field
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from tidelake.checkpoint.moved_rows_state import MovedRowsState
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import CorruptFile
from tidelake.ingest.formats.base import KEY_CHANGE_ID_BYTES, KeyChange
from tidelake.ingest.tables.moved_rows import MovedRow, MovedRows, MovedRowsByTable, widened
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import arrow_field

REPLACED_MAX: Final = 16  # replaced files that are kept for a rollback

_HEAD: Final = pa.schema(
    [
        ("_id", pa.binary(KEY_CHANGE_ID_BYTES)),
        ("_exact", pa.bool_()),
        ("_old_key", pa.string()),
        ("_new_key", pa.string()),
        ("_since_ms", pa.int64()),
        ("_why_unknown", pa.string()),
        ("_unknown", pa.list_(pa.int32())),
        ("_is_kept", pa.bool_()),
    ]
)

_log = get_logger(__name__)


class MovedRowFiles:
    """The files of one table and one pipeline. Methods block.

    directory: the directory of the files.
    commit_user: the pipeline's commit user.
    """

    def __init__(self, io: FileIO, directory: str, commit_user: str, schema: TableSchema) -> None:
        self._io = io
        self._directory = directory
        self._user = quote(commit_user, safe="")
        self._schema = schema

    def write(self, moved: MovedRows) -> MovedRowsState:
        """Write the moved rows to a new file. Without moved rows, no file is written."""
        rows, early = list(moved.pairs), moved.pairs.early
        if not rows and not early:
            return MovedRowsState(read_again=moved.read_again)
        name = f"{self._user}-{env.new_uuid().hex}.arrow"
        kept = [row for row in rows if row.values is not None]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, self._file_schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
            file.write_batch(self._batch(rows, early))
        self._io.create_if_absent(f"{self._directory}/{name}", sink.getvalue().to_pybytes())
        return MovedRowsState(
            name,
            len(kept),
            sum(row.nbytes for row in kept),
            min((row.since_ms for row in kept), default=None),
            len(rows) - len(kept),
            moved.read_again,
        )

    def read(self, state: MovedRowsState, moved: MovedRows, *, only_exact: bool) -> None:
        """Restore `moved` from a snapshot's state.

        only_exact: restore only key changes with exact ids. Offsets may have been skipped since, so the order doesn't
            show any more which halves belong together.

        A missing file is logged, because the table may be rolled back further than files are kept. Records that need
        its rows are then refused.
        """
        left: list[MovedRow] = []
        early: dict[bytes, int] = {}
        if state.file is not None:
            path = f"{self._directory}/{state.file}"
            try:
                batch = pa.ipc.open_file(pa.py_buffer(self._io.read(path))).read_all().combine_chunks()
                left, early = self._halves(batch)
            except FileNotFoundError:
                effect = "records that lack values of rows which moved to another key are refused"
                _log.warning("the file of moved rows is missing", file=path, rows=state.rows, effect=effect)
            except (pa.ArrowInvalid, KeyError, IndexError) as error:
                raise CorruptFile(path, "a file of moved rows", str(error)) from error
        if only_exact:
            left, early = [row for row in left if row.change.is_exact], {}
        moved.restore(left, early, state.read_again)

    def delete_unreferenced(self, named: Collection[str]) -> None:
        """Delete files of this pipeline that none of its snapshots names, including those of killed processes."""
        own_name = re.compile(re.escape(self._user) + r"-[0-9a-f]{32}\.arrow")
        for entry in self._io.list_directory(self._directory):
            if own_name.fullmatch(entry.name) and entry.name not in named:
                self.delete(entry.name)

    def delete(self, name: str) -> None:
        with suppress(OSError):  # a later start deletes it
            self._io.delete_all([f"{self._directory}/{name}"])

    # ------------------------------------------------------------ rows of the file

    @property
    def _file_schema(self) -> pa.Schema:
        fields = [arrow_field(field).with_name(f"f{field.id}").with_nullable(True) for field in self._schema.fields]
        return pa.schema([*_HEAD, *fields])

    def _batch(self, rows: Sequence[MovedRow], early: Mapping[bytes, int]) -> pa.RecordBatch:
        ids = {field.name: field.id for field in self._schema.fields}
        heads: list[dict[str, Any]] = [
            {
                "_id": row.change.id,
                "_exact": row.change.is_exact,
                "_old_key": row.change.old_key,
                "_new_key": row.change.new_key,
                "_since_ms": row.since_ms,
                "_why_unknown": row.why_unknown,
                "_unknown": sorted(ids[name] for name in row.unknown),
                "_is_kept": row.values is not None,
            }
            for row in rows
        ]
        heads += [{"_id": id_, "_is_kept": False} for id_, count in early.items() for _ in range(count)]
        head = pa.RecordBatch.from_pylist(heads, _HEAD)
        kept = [row.values for row in rows if row.values is not None]
        take = pa.array(
            _positions([row.values is not None for row in rows] + [False] * sum(early.values())), pa.int64()
        )
        columns = []
        for field in self._schema.fields:
            type_ = arrow_field(field).type
            values = pa.concat_arrays([one[field.name] for one in kept]) if kept else pa.array([], type_)
            columns.append(values.take(take))
        return pa.RecordBatch.from_arrays([*head.columns, *columns], schema=self._file_schema)

    def _halves(self, batch: pa.Table) -> tuple[list[MovedRow], dict[bytes, int]]:
        left: list[MovedRow] = []
        early: dict[bytes, int] = {}
        values, lacking = self._values(batch)
        names = {field.id: field.name for field in self._schema.fields}
        for at, head in enumerate(batch.select(_HEAD.names).to_pylist()):
            if head["_since_ms"] is None:
                early[head["_id"]] = early.get(head["_id"], 0) + 1
                continue
            unknown = lacking | {names[id_] for id_ in head["_unknown"] if id_ in names}
            one = values.take(pa.array([at])) if head["_is_kept"] else None
            change = KeyChange(head["_id"], head["_exact"], head["_old_key"], head["_new_key"])
            left.append(MovedRow(change, one, head["_since_ms"], unknown, head["_why_unknown"]))
        return left, early

    def _values(self, batch: pa.Table) -> tuple[pa.RecordBatch, frozenset[str]]:
        """Return the values in the table's current columns, and the columns that the file lacks."""
        fields = [arrow_field(field).with_nullable(True) for field in self._schema.fields]
        columns, lacking = [], set()
        for field, arrow in zip(self._schema.fields, fields, strict=True):
            at = batch.schema.get_field_index(f"f{field.id}")
            column = None if at < 0 else widened(batch.column(at), arrow.type)
            if column is not None:
                columns.append(column.combine_chunks())
            else:
                columns.append(pa.nulls(len(batch), arrow.type))
                lacking.add(field.name)
        columns = [column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column for column in columns]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields)), frozenset(lacking)


class MovedRowsStore:
    """Stores the moved rows of all tables of a pipeline with their snapshots.

    files_of: returns the files of an existing table.

    All methods block, except `properties`. Call them between writes.
    """

    def __init__(self, files_of: Callable[[str], MovedRowFiles], moved: MovedRowsByTable) -> None:
        self._files_of = files_of
        self._moved = moved
        self._states: dict[str, MovedRowsState] = {}
        self._replaced: dict[str, deque[str]] = {}
        self._named: dict[str, Collection[str]] = {}  # of tables whose directory was not cleaned up yet

    def begin(self, states: Mapping[str, MovedRowsState]) -> None:
        """Set the states of the tables' newest snapshots. Snapshots before `restore` repeat them."""
        self._states = dict(states)

    def restore(self, named: Mapping[str, Collection[str]], decided: Collection[str]) -> None:
        """Read the moved rows of all tables. From now on no other process can commit.

        named: for each table, the files that its snapshots name.
        decided: tables whose position an operator chose.
        """
        self._named = dict(named)
        for table, state in self._states.items():
            if state != MovedRowsState():
                files_of_table = self._files_of(table)
                files_of_table.read(state, self._moved.of(table), only_exact=table in decided)

    def restore_one(self, table: str, state: MovedRowsState) -> None:
        """Read the moved rows of one table, after `MovedRowsByTable.forget`."""
        self._states[table] = state
        if state != MovedRowsState():
            self._files_of(table).read(state, self._moved.of(table), only_exact=False)

    def properties(self, table: str) -> dict[str, str]:
        """Return the properties for the table's next snapshot."""
        return self._states.get(table, MovedRowsState()).to_properties()

    @property
    def is_idle(self) -> bool:
        """Whether `save` would change nothing."""
        return all(moved.is_idle for moved in self._moved.all())

    def save(
        self,
        reached: Callable[[str], Mapping[TopicPartition, int]],
        on_error: Callable[[str, Exception], None] | None = None,
    ) -> set[str]:
        """Make the moved rows durable. Returns the tables whose next snapshot has a new state.

        reached: returns how far the source was read for a table.
        on_error: called with the error of a table; the others continue. None: the error is raised.
        """
        changed: set[str] = set()
        for moved in list(self._moved.all()):
            try:
                self._save(moved, reached(moved.table), changed)
            except Exception as error:
                if on_error is None:
                    raise
                on_error(moved.table, error)
        return changed

    def _save(self, moved: MovedRows, reached: Mapping[TopicPartition, int], changed: set[str]) -> None:
        state = self._states.get(moved.table, MovedRowsState())
        moved.expire()
        moved.reached(reached)
        if moved.is_changed:
            files = self._files_of(moved.table)
            if (named := self._named.pop(moved.table, None)) is not None:
                # Delete the files of killed processes here. At the start, this would list the directories of all
                # tables.
                files.delete_unreferenced(named)
            new = files.write(moved)
            moved.is_changed = False
            if new.file is not None or state.file is not None:
                changed.add(moved.table)
            if state.file is not None:
                self._replaced.setdefault(moved.table, deque()).append(state.file)
            state = new
        self._states[moved.table] = replace(state, read_again=moved.read_again)

    def committed(self, tables: Iterable[str]) -> None:
        """Delete old replaced files of tables whose snapshot has the last saved state."""
        for table in tables:
            replaced = self._replaced.get(table, deque[str]())
            while len(replaced) > REPLACED_MAX:
                self._files_of(table).delete(replaced.popleft())


def _positions(flags: Sequence[bool]) -> list[int | None]:
    """Return the index of each kept row among the kept rows; None for other rows."""
    count = 0
    found: list[int | None] = []
    for flag in flags:
        found.append(count if flag else None)
        count += flag
    return found
