"""All public names."""

from __future__ import annotations

from importlib.metadata import version

import tidelake.arguments  # noqa: F401  # gives its types their home
from tidelake.catalog import Catalog, open_catalog
from tidelake.conditions import Column, Predicate, col
from tidelake.consumers import ConsumerPosition, TableConsumers
from tidelake.errors import (
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
from tidelake.migration import Migration
from tidelake.results import ChangeBatch, ChangePosition, CompactionReport, Refreshed, RefreshKind, Snapshot
from tidelake.scan import Scan
from tidelake.schema import (
    AddColumn,
    DropColumn,
    MaterializedDefinition,
    RemoveOption,
    RenameColumn,
    SetOption,
    UpdateColumnDefault,
    UpdateColumnDescription,
    UpdateColumnNullability,
    UpdateColumnPosition,
    UpdateColumnType,
    UpdateComment,
    UpdatePrimaryKey,
    View,
)
from tidelake.table import Table
from tidelake.variants import variant_from_json, variant_get, variant_to_json
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
    "UpdatePrimaryKey",
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
