"""The configuration of each table, by its name. Tables that a record names are added while the pipeline runs."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from tidelake.checkpoint.routing import Routing
from tidelake.ingest.decoding.target_numbers import DecoderSetup
from tidelake.ingest.derived.derived_columns import DerivedColumns
from tidelake.ingest.derived.deriving_decoder import DerivingFormat
from tidelake.ingest.evolution.behavior import SchemaBehavior
from tidelake.ingest.formats.base import Decoder, OpenedFormat, TargetOf
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.ingest.shaping.shaping_decoder import ShapedFormat
from tidelake.ingest.tables.column_types import ColumnTypes
from tidelake.ingest.tables.table_targets import TableTargets
from tidelake.ingest.tables.table_templates import ExpandedTable


@dataclass
class ConfiguredTables:
    """Configurations by table name. The parts of a pipeline share these mappings, and see tables that are added.

    following_types: tables whose columns become as wide as in the records' schema.
    shared_with: commit users that write other records to a table.
    """

    config: Config
    settings: dict[str, TableSettings] = field(default_factory=dict)
    behaviors: dict[str, SchemaBehavior] = field(default_factory=dict)
    column_types: dict[str, ColumnTypes] = field(default_factory=dict)
    derived: dict[str, DerivedColumns] = field(default_factory=dict)
    shapes: dict[str, ShapedColumns] = field(default_factory=dict)
    routings: dict[str, Routing] = field(default_factory=dict)
    following_types: set[str] = field(default_factory=set)
    shared_with: dict[str, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> ConfiguredTables:
        """Return the tables of a configuration. Raises BadInput for an unknown type, source type or metadata column."""
        found = cls(config)
        for table in config.named_tables:
            found.add(table)
        return found

    def add(self, table: TableSettings) -> None:
        config, name = self.config, table.name
        shape = ShapedColumns.of(table, config.mask_salt, is_template=isinstance(table, ExpandedTable))
        types = ColumnTypes.of(table, config.format, shape)
        behavior = SchemaBehavior(config.schema_evolution_of(table))
        self.settings[name] = table
        self.behaviors[name], self.column_types[name], self.derived[name] = behavior, types, types.derived
        self.shapes[name] = shape
        self.routings[name] = Routing.of(config.format, table.match_patterns, table.topic_patterns)
        self.shared_with[name] = table.other_users
        if behavior.follows_types:
            self.following_types.add(name)

    @cached_property
    def targets(self) -> TableTargets:
        return TableTargets(self.settings, self.following_types, self.derived, self.shapes)

    def decoder(self, format_: OpenedFormat, target_of: TargetOf) -> Decoder:
        """Return the decoder of the records. It also gives tables their shape, and adds the derived columns."""
        return self.format(format_).decoder(target_of)

    def format(self, format_: OpenedFormat) -> OpenedFormat:
        """Return the format of the records, whose decoders also give tables their shape and add derived columns."""
        if self._shapes_columns:
            format_ = ShapedFormat(format_, self.shapes)
        return DerivingFormat(format_, self.derived) if self._derives_columns else format_

    def decoder_setup(self, format_: OpenedFormat) -> DecoderSetup:
        """Return what another process needs to decode like `decoder`."""
        by_table: list[MutableMapping[str, Any]] = []
        if self._shapes_columns:
            by_table.append(self.shapes)
        if self._derives_columns:
            by_table.append(self.derived)
        return DecoderSetup(self.format(format_), tuple(by_table))

    @property
    def masks_columns(self) -> bool:
        """Whether any table masks columns."""
        return any(table.masks for table in self.config.tables)

    def withholds(self, table: str | None) -> bool:
        """Return whether records of a table must not be kept or shown, because it masks columns.

        table: None: unknown. Such a record may be of any table.
        """
        return self.masks_columns if table is None else bool(self.settings[table].masks)

    @property
    def _shapes_columns(self) -> bool:
        return any(ShapedColumns.of(table, self.config.mask_salt) for table in self.config.tables)

    @property
    def _derives_columns(self) -> bool:
        """Return whether any table has derived columns. Tables that may be added later are included."""
        templates = (DerivedColumns.of(table, self.config.format) for table in self.config.templates)
        return any(self.derived.values()) or any(templates)
