"""The targets for decoding: each table's schema, with the configuration and decisions about its columns."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.formats.base import Target, VersionColumns
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.types.type_mapping import ALLOW_NON_STRING_TO_STRING, TypeMapping
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.shaping.kept_changes import check_kept_changes
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.shaping.snapshot_bootstrap import check_bootstrap
from tidelake.storage.model.table import TableContext


@dataclass(frozen=True, slots=True)
class ColumnDecisions:
    """Decisions about the columns of one table; see `Target`."""

    follows_types: bool = False
    follows_texts: bool = False
    ignored_columns: frozenset[str] = frozenset()
    fixed_columns: frozenset[str] = frozenset()

    def applied(self, target: Target) -> Target:
        return replace(
            target,
            follows_types=self.follows_types,
            follows_texts=self.follows_texts,
            ignored_columns=self.ignored_columns,
            fixed_columns=self.fixed_columns,
        )


class TableTargets:
    """Creates the targets of tables, and keeps the decisions about their columns until the process ends.

    settings: the settings of each table, by its name.
    following_types: tables whose columns become as wide as in the records' schema.
    derived: the derived columns of each table, by its name.
    shapes: the shape of each table, by its name.
    """

    def __init__(
        self,
        settings: Mapping[str, TableSettings],
        following_types: Collection[str] = (),
        derived: Mapping[str, DerivedColumns] | None = None,
        shapes: Mapping[str, ShapedColumns] | None = None,
    ) -> None:
        self._settings = settings
        self._derived = {} if derived is None else derived
        self._shapes = {} if shapes is None else shapes
        self._following_types = following_types
        self._ignored: dict[str, set[str]] = {}
        self._fixed: dict[str, set[str]] = {}
        self._document_ids: defaultdict[str, DocumentIds] = defaultdict(DocumentIds)

    def document_ids(self, table: str) -> DocumentIds:
        """Return the ids that were read for the table. All its targets share them."""
        return self._document_ids[table]

    def of(self, table: TableContext) -> Target:
        """Return the target of a table.

        Raises BadInput for settings of columns that the table lacks or that can't have these settings, and for missing
        derived columns.
        """
        settings = self._settings[table.name]
        if derived := self._derived.get(table.name):
            derived.bind(table.schema, table.name, table.location)
        if shape := self._shapes.get(table.name):
            made = derived.names if derived else ()
            shape.check(table, {*made, *settings.key_columns})
        check_kept_changes(settings, table)
        check_bootstrap(settings, table)
        target = Target.of(
            table,
            settings.source_types,
            settings.rounded_columns,
            key_from_records=settings.takes_key_of_records,
            key_columns=settings.key_columns,
        )
        deleted_at = settings.deleted_at_column if settings.deletes == "soft" else ""
        ids = self.document_ids(table.name)
        target = replace(target, deleted_at_column=deleted_at, is_history=settings.mode == "append", document_ids=ids)
        if settings.mode == "scd2":
            made = derived.names if derived else ()
            key = tuple(name for name in table.schema.primary_keys if name not in made)
            versions = (settings.valid_from_column, settings.valid_to_column, settings.current_column)
            target = replace(target, versions=VersionColumns(key, *versions))
        return self.with_decisions(target)

    def with_decisions(self, target: Target) -> Target:
        """Return the target with the current decisions about its columns."""
        return self.decisions(target.name).applied(target)

    def decisions(self, table: str) -> ColumnDecisions:
        return ColumnDecisions(
            table in self._following_types,
            self._infers_text_types(table),
            frozenset(self._ignored.get(table, ())),
            frozenset(self._fixed.get(table, ())),
        )

    def _infers_text_types(self, table: str) -> bool:
        return ALLOW_NON_STRING_TO_STRING in TypeMapping.parse(self._settings[table].type_mapping).words

    def ignore(self, table: str, columns: Collection[str]) -> None:
        """Ignore these columns of the records, which the table lacks."""
        self._ignored.setdefault(table, set()).update(columns)

    def keep_type(self, table: str, columns: Collection[str]) -> None:
        """Don't widen these columns of the table. Records with values that don't fit are bad records."""
        self._fixed.setdefault(table, set()).update(columns)
