"""The tables of a pipeline. Existing tables are opened, others are created at their first record.

Only the records of the source show which columns a table has. So a new table is created from its first record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from tidelake.errors import BadInput, TableFailed, TableNotInferred, TableUnusable
from tidelake.ingest.formats.base import InferredTable, Target
from tidelake.ingest.formats.source_keys import columns_outside, wider_key_text
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.types.inferred_types import inferred_type
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.ingest.tables.table_differences import TableDifference, check_differences, differences
from tidelake.ingest.tables.table_errors import failures_of, opened_at_start
from tidelake.ingest.tables.table_lineage import SourceLineage
from tidelake.ingest.tables.table_router import router_of
from tidelake.ingest.tables.table_sink import TableSink
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.ingest.tables.table_templates import ExpandedTable
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_parallel, map_to_end
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.merge.sequence_groups import late_rows_note
from tidelake.storage.model.options import MergeEngine
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, not_null

_log = get_logger(__name__)


FirstRecords: TypeAlias = tuple[RawBatch, Mapping[SourceTable, int]]
"""(batch, unrouted source tables with the row of their first record in it)"""


@dataclass(frozen=True, slots=True)
class _NewTable:
    """A table to be created, with the columns that its first record shows."""

    settings: TableSettings
    inferred: InferredTable
    source: SourceTable


class PipelineTables:
    """The tables of a pipeline. All methods block. `create` may run while other threads use `sinks`.

    settings: the settings of each table. Entries that stand for many tables name a table when a record names it.
    differences: contradictions between the configuration and existing tables.
    open_sink: creates the sink of an opened table. It reads nothing.
    infer: returns columns and key of a record's table.
    named: called first with each new table of an entry that stands for many tables.
    contexts: tables that were opened just now; the others are opened here.
    continued: tables that this process writes already, with their sinks.
    quarantines_unreadable: whether unreadable tables are left out and added to `unreadable`. Otherwise the error is
        raised.
    """

    def __init__(
        self,
        settings: Sequence[TableSettings],
        catalog: Catalog,
        open_sink: Callable[[TableContext], TableSink],
        infer: Callable[[RawBatch, int], InferredTable],
        targets: TableTargets | None = None,
        column_types: Mapping[str, ColumnTypes] | None = None,
        named: Callable[[ExpandedTable], None] = lambda _: None,
        *,
        contexts: Mapping[str, TableContext] | None = None,
        continued: Mapping[str, TableSink] | None = None,
        quarantines_unreadable: bool = False,
    ) -> None:
        self.router = router_of(settings)
        settings = [table for table in settings if not table.is_template]
        self._settings = {table.name: table for table in settings}
        self._named = named
        self._catalog = catalog
        self._open_sink = open_sink
        self._infer = infer
        self._column_types = {table.name: ColumnTypes() for table in settings} if column_types is None else column_types
        self._targets = targets or TableTargets(self._settings)
        self._quarantines_unreadable = quarantines_unreadable
        self.unreadable: dict[str, Exception] = {}
        self.sinks: MutableMapping[str, TableSink] = {}
        self.differences: list[TableDifference] = []
        opening = partial(self._opened_at_start, contexts or {}, continued or {})
        for table, opened in zip(settings, map_parallel(opening, settings), strict=True):
            if opened is not None:
                self._register(table, *opened)
                self.differences += differences(table, opened[0])

    def create(self, batch: RawBatch, unrouted: Mapping[SourceTable, int], ahead: Sequence[FirstRecords] = ()) -> bool:
        """Create the tables of these records, if they belong to the pipeline. Returns whether any was created.

        unrouted: source tables with the row of their first record in the batch.
        ahead: those of later batches. Their tables are created, too, if this is possible.

        Raises TableNotInferred if a record doesn't show the columns or the key of its table, BadInput for a table that
        can't be created.
        """
        try:
            return self.create_except((), batch, unrouted, ahead)
        except TableFailed as failed:
            raise failed.error from failed.error.__cause__

    def create_except(
        self,
        left_out: Collection[str],
        batch: RawBatch,
        unrouted: Mapping[SourceTable, int],
        ahead: Sequence[FirstRecords] = (),
    ) -> bool:
        """Do the same, without the tables of `left_out`, and raise the error of a table as TableFailed.

        The tables are created side by side. If several fail, the error of the first one is raised; others are created.
        """
        new = dict[str, _NewTable | TableFailed]()
        for source, row in unrouted.items():
            self._add_new(new, left_out, source, batch, row)
        needed = list(new)
        with suppress(BadInput):  # it is raised in the batch's turn
            for later, sources in ahead:
                for source, row in sources.items():
                    self._add_new(new, left_out, source, later, row)
        outcomes = dict(zip(new, map_to_end(self._made, list(new.values())), strict=True))
        for name, made in outcomes.items():
            if not isinstance(made, TableFailed):
                self._register(self._settings[name], *made)
        for name in needed:
            if isinstance(failed := outcomes[name], TableFailed):
                raise failed
        return bool(needed)

    def _add_new(
        self,
        new: dict[str, _NewTable | TableFailed],
        left_out: Collection[str],
        source: SourceTable,
        batch: RawBatch,
        row: int,
    ) -> None:
        """Add the tables of a record to `new`, or their errors, unless they exist or are in `new`."""
        for name in self.router.tables_for(source):
            if name in left_out or name in self.sinks or name in new:
                continue
            try:
                with failures_of(name):
                    new[name] = self._inferred(name, source, batch, row)
            except TableFailed as error:
                if isinstance(error.error, TableNotInferred):
                    error.error.table = name
                new[name] = error

    def _inferred(self, name: str, source: SourceTable, batch: RawBatch, row: int) -> _NewTable:
        table = self._settings.get(name) or self._name(source)
        shape = self._column_types[name].shape
        inferred = with_key_columns(table, shape.inferred(self._infer(batch, row)))
        check_inferred(table, inferred, batch, row)
        return _NewTable(self._fit_settings(table, inferred), inferred, source)

    def _made(self, new: _NewTable | TableFailed) -> tuple[TableContext, TableSink] | TableFailed:
        """Create one table. Returns its error."""
        if isinstance(new, TableFailed):
            return new
        try:
            with failures_of(new.settings.name):
                return self._create(new.settings, new.inferred, new.source)
        except TableFailed as error:
            return error

    def _name(self, source: SourceTable) -> ExpandedTable:
        table = self.router.templates.table_for(source)
        assert table is not None, source
        self._settings[table.name] = table
        self._named(table)
        self.router.add_table(table)
        return table

    @property
    def settings(self) -> Mapping[str, TableSettings]:
        """The settings of each table, as its sink was opened with them."""
        return self._settings

    def reopen(self, name: str) -> tuple[TableSink, Target] | None:
        """Open the table in its current state, with a new writer that the pipeline doesn't use yet.

        Returns None if the table doesn't exist. Raises BadInput if the configuration contradicts it, and the errors of
        opening it.
        """
        table = self._settings[name]
        opened = self._open_existing(table)
        if opened is None:
            return None
        context, sink = opened
        sink.skip_bootstrap()  # its first records come from the log of kept ones
        sink.finish_rewrite()
        check_differences(differences(table, context))
        return sink, self._targets.of(context)

    def _create(
        self, table: TableSettings, inferred: InferredTable, source: SourceTable
    ) -> tuple[TableContext, TableSink]:
        primary_key = table.key_of_new(inferred.primary_key)
        inferred = self._column_types[table.name].apply(inferred, primary_key)
        names = [field.name for field in inferred.fields]
        if missing := [name for name in (*table.primary_key, *table.partition_by) if name not in names]:
            raise BadInput(
                f"{table.name} can't be created: {source} has no column {', '.join(missing)}, only {', '.join(names)}. "
                "Correct `primary_key` and `partition_by`"
            )
        options = table.options_of_new(inferred.primary_key)
        # All checks of an existing table are made before the table is created, so that no table gets a bad option.
        apart = [name for name in table.partition_by if name not in primary_key] if primary_key else []
        if apart and options.get("bucket") != "-1":
            raise BadInput(
                f"{table.name} can't be created: the key of the records of {source} is ({', '.join(primary_key)}), "
                f"but the key must determine the partition. Set `primary_key: [{', '.join([*primary_key, *apart])}]`, "
                f"or remove {', '.join(apart)} from `partition_by`, or set `bucket: -1` in `options`: then keys move "
                "between partitions"
            )
        try:
            preview = self._catalog.preview_table(
                table.name, inferred.fields, primary_key=primary_key, partition_by=table.partition_by, options=options
            )
        except BadInput as error:
            raise BadInput(f"{table.name} can't be created: {error}") from error
        self._targets.of(preview)
        self._open_sink(preview).writer.abort()
        self._catalog.create_database(table.name.partition(".")[0], if_not_exists=True)
        self._catalog.create_table(
            table.name,
            inferred.fields,
            primary_key=primary_key,
            partition_by=table.partition_by,
            options=options,
            if_not_exists=True,
        )
        _log.info("table created", table=table.name, after=str(source), columns=len(names))
        opened = self._loaded(table)
        check_differences(differences(table, opened[0]))  # another process may have created the table meanwhile
        if isinstance(table, ExpandedTable):
            check_unread(opened[1], source)
        return opened

    def _fit_settings(self, table: TableSettings, inferred: InferredTable) -> TableSettings:
        """Adapt the settings of an entry that stands for many tables: a table may lack its key or partition columns."""
        if not isinstance(table, ExpandedTable):
            return table
        derived = self._column_types[table.name].derived
        fitted = table.fitted([*(f.name for f in inferred.fields), *derived.names])
        for setting in ("primary_key", "partition_by"):
            if getattr(fitted, setting) != getattr(table, setting):
                effect = "the key of its records is" if setting == "primary_key" else "none are"
                _log.warning(
                    "the table lacks columns that its entry names",
                    table=table.name,
                    entry=table.template,
                    effect=f"`{setting}` is left out; {effect} taken instead",
                )
        self._settings[table.name] = fitted
        return fitted

    def _opened_at_start(
        self, contexts: Mapping[str, TableContext], continued: Mapping[str, TableSink], table: TableSettings
    ) -> tuple[TableContext, TableSink] | None:
        if (sink := continued.get(table.name)) is not None:
            return sink.context, sink
        try:
            with opened_at_start(table.name, is_only=len(self._settings) == 1):
                context = contexts.get(table.name)
                return self._open_existing(table) if context is None else (context, self._open_sink(context))
        except TableUnusable as error:
            if not self._quarantines_unreadable:
                raise
            self.unreadable[table.name] = error
            return None

    def _open_existing(self, table: TableSettings) -> tuple[TableContext, TableSink] | None:
        """Open the table; None if it doesn't exist."""
        return self._loaded(table) if self._catalog.table_exists(table.name) else None

    def _loaded(self, table: TableSettings) -> tuple[TableContext, TableSink]:
        context = self._catalog.load(table.name)
        return context, self._open_sink(context)

    def _register(self, table: TableSettings, context: TableContext, sink: TableSink) -> None:
        self.sinks[table.name] = sink
        self.router.add_target(self._targets.of(context))
        note = late_rows_note(context.schema, context.options) if context.schema.has_primary_key else None
        if note is not None:
            _log.warning("late rows may give other values", table=table.name, reason=note)


def with_key_columns(table: TableSettings, inferred: InferredTable) -> InferredTable:
    """Return the table with the columns that only the records' keys have, as far as the settings name them."""
    taken = [name for name in table.key_columns if name in inferred.outside]
    if not taken:
        return inferred
    types = [inferred_type(inferred.outside[name]) for name in taken]
    first = len(inferred.fields)
    added = [
        DataField(first + i, name, not_null(type_)) for i, (name, type_) in enumerate(zip(taken, types, strict=True))
    ]
    return replace(
        inferred,
        fields=(*inferred.fields, *added),
        primary_key=(*taken, *inferred.primary_key),
        sources={**inferred.sources, **{name: inferred.outside[name] for name in taken}},
        outside={name: source for name, source in inferred.outside.items() if name not in taken},
    )


def check_inferred(table: TableSettings, inferred: InferredTable, batch: RawBatch, row: int) -> None:
    """Check that a table can be created from a record.

    Raises TableNotInferred for a record without columns, or with an unreadable key that the table needs, and BadInput
    if the record's key has columns that the table's key would lack.
    """
    if not inferred.fields:
        raise TableNotInferred.for_record(batch, row, "its row has no columns")
    if inferred.key_error and not table.primary_key and table.takes_key_of_records:
        raise TableNotInferred(
            batch,
            row,
            f"the primary key of {table.name} cannot be derived from this record's key: {inferred.key_error}. "
            "Set `primary_key` of the table, or create the table without one (`key_from_records: false`)",
        )
    primary_key = table.key_of_rows(inferred.primary_key)
    key_of_record = (*inferred.primary_key, *inferred.outside)
    engine = table.raw_options.get("merge-engine", MergeEngine.DEDUPLICATE)
    # A column that is missing here is computed, or belongs to other tables of the entry, or another check names it.
    is_known = {field.name for field in inferred.fields}.issuperset(primary_key)
    compares_keys = is_known and table.takes_key_of_records and engine == MergeEngine.DEDUPLICATE
    if compares_keys and columns_outside(key_of_record, primary_key):
        text = wider_key_text(table.name, key_of_record, primary_key, [f.name for f in inferred.fields])
        raise BadInput(f"topic {batch.topic}, partition {batch.partition}, offset {int(batch.offsets[row])}: {text}")


def check_unread(sink: TableSink, source: SourceTable) -> None:
    """Check a table that existed before the first record of a source table.

    Raises BadInput if the table has another pipeline's position, or one of this pipeline that was not recovered at the
    start, because the entry doesn't include the source tables of that time any more.
    """
    state = sink.read_state()
    before = SourceLineage.of(state.own[0].properties).tables if state.own else None
    if before and str(source) not in before:
        raise BadInput(
            f"{sink.name} has the records of {', '.join(sorted(before))}, which its entry doesn't include any more, so "
            f"the records of {source} can't continue its position. Give them another table (`source_tables: {{mapping: "
            "…}`), rename the existing table, or include its source tables again"
        )
    others = state.newest_of_others
    if others:
        raise BadInput(
            f"{sink.name} has records that {others[0].commit_user} wrote (snapshot {others[0].id}). This pipeline has "
            "never written to the table, and could write the same records again. Write a separate entry for the "
            "table, with `shared_with`, or exclude it (`excluding_tables`)"
        )
