"""Procedures of Paimon that are not supported, and the reasons. paimon-spark supports them, in the same warehouse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_ROW_IDS: Final = "row ids of data-evolution tables are given once here, and never again"
_INDEX: Final = "global indexes are neither written nor asked here"
_FUNCTION: Final = "functions belong to an engine with SQL of its own"
_CHAIN: Final = "chain tables are not written here"

UNSUPPORTED_PROCEDURES: Final[Mapping[str, str]] = {
    "alter_function": _FUNCTION,
    "alter_view_dialect": "a view is made with all its dialects: drop it, and create it again (Catalog.create_view)",
    "compact_chain_table": _CHAIN,
    "create_function": _FUNCTION,
    "create_global_index": _INDEX,
    "drop_function": _FUNCTION,
    "drop_global_index": _INDEX,
    "materialize_deletion_vectors": f"{_ROW_IDS}; of other tables a full compact drops deleted rows",
    "reassign_row_id": _ROW_IDS,
    "refresh_object_table": "object tables are not written here",
}
