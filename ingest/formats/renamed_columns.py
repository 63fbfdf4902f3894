"""Tables whose records have other column names: they are decoded under these names, and get the table's names after it.

A name of the records may differ in case (`tidelake.ingest.formats.case_insensitive`), or because the table renames a
column (`tidelake.ingest.shaping`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tidelake.ingest.formats.base import (
    DecodeFailure,
    FailureKind,
    OpenedFormat,
    TableRows,
    Target,
    UnavailableValues,
)
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.record_schema import UnknownColumns

Names = Callable[[str], str]


@dataclass(frozen=True)
class WrappingFormat:
    """A format whose decoder changes what another format decodes. See `tidelake.ingest.formats.base.OpenedFormat`.

    format: the format of the records.
    """

    format: OpenedFormat

    @property
    def KEPT_HEADERS(self) -> frozenset[str]:  # noqa: N802 - the name in `Format`
        return self.format.KEPT_HEADERS

    @property
    def DECODING_BLOCKS(self) -> bool:  # noqa: N802 - the name in `Format`
        return self.format.DECODING_BLOCKS

    @property
    def CAPABILITIES(self) -> FormatCapabilities:  # noqa: N802 - the name in `Format`
        return self.format.CAPABILITIES


def with_record_names(whole: Target, record_name: Names) -> Target:
    """Return a target with the records' names, into which they are decoded.

    record_name: name of a column in the table to its name in the records.
    """
    schema = replace(
        whole.schema,
        fields=tuple(replace(field, name=record_name(field.name)) for field in whole.schema.fields),
        primary_keys=tuple(map(record_name, whole.schema.primary_keys)),
        partition_keys=tuple(map(record_name, whole.schema.partition_keys)),
    )
    return replace(
        whole,
        schema=schema,
        source_types={record_name(name): word for name, word in whole.source_types.items()},
        rounded_columns=frozenset(map(record_name, whole.rounded_columns)),
        ignored_columns=frozenset(map(record_name, whole.ignored_columns)),
        fixed_columns=frozenset(map(record_name, whole.fixed_columns)),
        key_columns=tuple(map(record_name, whole.key_columns)),
    )


def rows_with_table_names(found: TableRows, whole: Target, table_name: Names) -> TableRows:
    """Return rows that were decoded `with_record_names` as rows of the table."""
    kinds = found.rows.schema.field(len(found.rows.schema) - 1)
    rows = pa.RecordBatch.from_arrays(found.rows.columns, schema=whole.schema.arrow.append(kinds))
    unavailable = None if found.unavailable is None else _unavailable(found.unavailable, table_name)
    return replace(found, target=whole, rows=rows, unavailable=unavailable)


def _unavailable(found: UnavailableValues, table_name: Names) -> UnavailableValues:
    keys = found.keys
    if keys.num_columns:  # a batch without columns would lose its number of rows
        keys = pa.RecordBatch.from_arrays(keys.columns, names=[*map(table_name, keys.schema.names)])
    return replace(found, columns={table_name(name): flags for name, flags in found.columns.items()}, keys=keys)


def failure_with_table_names(
    found: DecodeFailure,
    whole: Target,
    table_name: Names,
    statements_of: Callable[[Sequence[ColumnStatement]], tuple[ColumnStatement, ...]],
) -> DecodeFailure | None:
    """Return a failure that was found `with_record_names`, for the table. None for DDL that changes nothing there.

    table_name: name of a column in the records to its name in the table.
    statements_of: statements of DDL to those with the table's names, without those that change nothing.
    """
    statements, shadow = statements_of(found.statements), found.shadow
    if found.statements and not statements:
        return None
    if shadow is not None and shadow.statements:
        shadow = replace(shadow, statements=statements_of(shadow.statements))
        if not shadow.statements:
            return None
    needed = tuple(replace(one, path=(table_name(one.path[0]), *one.path[1:])) for one in found.needed)
    reason = found.reason
    if found.kind is FailureKind.UNKNOWN_COLUMN:
        reason = str(UnknownColumns(whole, needed))
    else:
        for one in found.needed:  # the command in the reason must have the table's name of the column
            pattern = rf"(?<!\w){re.escape(one.path[0])}(?!\w)"
            reason = re.sub(pattern, table_name(one.path[0]).replace("\\", r"\\"), reason)
    return replace(
        found,
        reason=reason,
        columns=tuple(".".join(one.path) for one in needed),
        needed=needed,
        target=whole,
        statements=statements,
        shadow=shadow,
    )
