"""Procedures of Paimon that are not supported, and the reasons. paimon-spark supports them, in the same warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ROW_IDS: Final = "this release never changes the row ids of data-evolution tables"
_INDEX: Final = "this release neither writes nor reads global indexes"
_FUNCTION: Final = "only engines with their own SQL have functions"
_CHAIN: Final = "this release can't write chain tables"

UNSUPPORTED_PROCEDURES: Final[Mapping[str, str]] = {
    "alter_function": _FUNCTION,
    "alter_view_dialect": "a view is created with all its dialects: drop it, and create it again (Catalog.create_view)",
    "compact_chain_table": _CHAIN,
    "create_function": _FUNCTION,
    "create_global_index": _INDEX,
    "drop_function": _FUNCTION,
    "drop_global_index": _INDEX,
    "materialize_deletion_vectors": f"{_ROW_IDS}; for other tables, a full compaction removes deleted rows",
    "reassign_row_id": _ROW_IDS,
    "refresh_object_table": "this release can't write object tables",
}
