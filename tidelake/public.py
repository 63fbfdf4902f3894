"""All public names."""

from __future__ import annotations

from importlib.metadata import version

from tidelake.catalog import Catalog, open_catalog
from tidelake.compaction.report import CompactionReport
from tidelake.consumers import ConsumerPosition, TableConsumers
from tidelake.materialized.refresh import Refreshed, RefreshKind
from tidelake.scan import Scan
from tidelake.storage.base.errors import (
    AccessDenied,
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    PositionRefused,
    SnapshotExpired,
    TidelakeError,
    UnsupportedFeature,
    WriterFenced,
)
from tidelake.storage.catalog.view import View
from tidelake.storage.ddl.materialized import MaterializedDefinition
from tidelake.storage.ddl.schema_changes import (
    AddColumn,
    DropColumn,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
)
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.changes.position import ChangePosition
from tidelake.storage.read.predicate import Column, Predicate, col
from tidelake.storage.read.variants.columns import variant_from_json, variant_get, variant_to_json
from tidelake.table import Table
from tidelake.table_kinds.migrating import Migration
from tidelake.writer import Writer

__version__ = version("tidelake")

__all__ = [
    "AccessDenied",
    "AddColumn",
    "BadInput",
    "Catalog",
    "ChangeBatch",
    "ChangePosition",
    "Column",
    "CommitConflict",
    "CommitOutcomeUnknown",
    "CompactionReport",
    "ConsumerPosition",
    "CorruptFile",
    "DropColumn",
    "MaterializedDefinition",
    "Migration",
    "PositionRefused",
    "Predicate",
    "RefreshKind",
    "Refreshed",
    "RemoveOption",
    "RenameColumn",
    "Scan",
    "SetOption",
    "Snapshot",
    "SnapshotExpired",
    "Table",
    "TableConsumers",
    "TidelakeError",
    "UnsupportedFeature",
    "UpdateColumnDefault",
    "UpdateColumnDescription",
    "UpdateColumnNullability",
    "UpdateColumnPosition",
    "UpdateColumnType",
    "UpdateComment",
    "View",
    "Writer",
    "WriterFenced",
    "__version__",
    "col",
    "open_catalog",
    "variant_from_json",
    "variant_get",
    "variant_to_json",
]
