"""Table options: their registry, the syntax of their values, and the typed values of a table's options."""

from __future__ import annotations

from tidelake.storage.model.options.option import Operation
from tidelake.storage.model.options.table_options import ChangelogProducer, LookupCompact, MergeEngine, TableOptions

__all__ = ["ChangelogProducer", "LookupCompact", "MergeEngine", "Operation", "TableOptions"]
