"""Reads the time of a partition from its values.

Source: Java `partition/PartitionTimeExtractor.java`, `PartitionValuesTimeExpireStrategy.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from tidelake.errors import BadInput
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.partition_text import partition_texts
from tidelake.storage.model.types.time_formats import parse_leniently, time_format


def partition_check(context: TableContext) -> Callable[[bytes], None] | None:
    """Return a check that refuses partitions without a time; None if the table's options don't require the check."""
    options = context.options
    if not options.partition_timestamp_strict or not context.schema.partition_keys:
        return None
    if options.partition_timestamp_pattern is None and options.partition_timestamp_formatter is None:
        return None
    return PartitionTimes(context).check


class PartitionTimes:
    """The times of partitions, by options `partition.timestamp-pattern` and `partition.timestamp-formatter`.

    Without a pattern the time is read from the first partition column. Raises BadInput for an invalid formatter.
    """

    def __init__(self, context: TableContext) -> None:
        self._table_name = context.name
        self._fields = context.schema.partition_fields
        self._pattern = context.options.partition_timestamp_pattern
        formatter = context.options.partition_timestamp_formatter
        self._parse = parse_leniently if formatter is None else time_format(formatter).parse

    def of(self, partitions: Sequence[bytes]) -> list[datetime | None]:
        """Return the time of each serialized partition; None if a needed value is null, or the text is not a time."""
        types = [field.type for field in self._fields]
        if not partitions or not types:
            return [None] * len(partitions)
        columns = decode_rows(partitions, types)
        rows = zip(*columns, strict=True)
        return [self._time(partition_texts(row, types, legacy=True)) for row in rows]

    def check(self, partition: bytes) -> None:
        """Raise BadInput for a partition without a time."""
        (time,) = self.of([partition])
        if time is None:
            types = [field.type for field in self._fields]
            texts = partition_texts([column[0] for column in decode_rows([partition], types)], types, legacy=True)
            shown = ", ".join(f"{field.name}={text}" for field, text in zip(self._fields, texts, strict=True))
            raise BadInput(
                f"{self._table_name}: partition {shown} is not a time in the form of partition.timestamp-pattern and "
                "partition.timestamp-formatter; correct the rows, or unset partition.timestamp-format.strict"
            )

    def _time(self, texts: Sequence[str | None]) -> datetime | None:
        text = texts[0] if self._pattern is None else self._filled(self._pattern, texts)
        return None if text is None else self._parse(text)

    def _filled(self, pattern: str, texts: Sequence[str | None]) -> str | None:
        """Replace each `$column` by its value. The longest matching name is used. None if a used value is null."""
        by_name = sorted(zip(self._fields, texts, strict=True), key=lambda pair: -len(pair[0].name))
        filled, at = "", 0
        while at < len(pattern):
            found = next(((f.name, text) for f, text in by_name if pattern.startswith("$" + f.name, at)), None)
            if found is None:
                filled, at = filled + pattern[at], at + 1
                continue
            name, text = found
            if text is None:
                return None
            filled, at = filled + text, at + 1 + len(name)
        return filled
