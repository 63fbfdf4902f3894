"""Table options: their registry, the syntax of their values, and the typed values of a table's options."""

from __future__ import annotations

from storage.options.option import Operation
from storage.options.table_options import ChangelogProducer, LookupCompact, MergeEngine, TableOptions

__all__ = ["ChangelogProducer", "LookupCompact", "MergeEngine", "Operation", "TableOptions"]
