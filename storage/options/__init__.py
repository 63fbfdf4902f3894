"""Table options: which there are, how their values are spelt, and what a table's say."""

from __future__ import annotations

from storage.options.option import Operation
from storage.options.table_options import ChangelogProducer, LookupCompact, MergeEngine, TableOptions

__all__ = ["ChangelogProducer", "LookupCompact", "MergeEngine", "Operation", "TableOptions"]
