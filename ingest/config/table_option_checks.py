"""Checks the table options of a configuration before any table is created.

Checks that need the columns are possible only after the first record of a table
(`tidelake.ingest.tables.pipeline_tables`). All other checks are made here.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Final

from tidelake.ingest.settings import TableSettings
from tidelake.storage.base.errors import BadInput, UnsupportedFeature
from tidelake.storage.fileio.local import LocalFileIO
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import UNAWARE_BUCKET
from tidelake.storage.model.messages.suggestions import did_you_mean
from tidelake.storage.model.option_support import check_supported
from tidelake.storage.model.options import Operation, TableOptions
from tidelake.storage.model.options.registry import TABLE_REGISTRY, find_option
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import STRING, DataField

_KEYS: Final = {"primary-key": "primary_key", "partition": "partition_by"}


def option_errors(table: TableSettings) -> Iterator[tuple[str | None, str, str]]:
    """Yield (option, reason, remedy) of each error. The option is None if several options together are the error.

    A name that Paimon doesn't know is accepted, unless it resembles a known one: tables may have options for other
    programs.
    """
    options = table.raw_options
    for key, text in options.items():
        if key in _KEYS:
            yield key, f"option {key} has the same meaning as `{_KEYS[key]}`", f"Set `{_KEYS[key]}` instead."
        elif (option := find_option(key)) is None:
            if hint := did_you_mean(key, TABLE_REGISTRY.keys):
                yield key, f"Paimon has no option {key!r}{hint}", "Correct the name, or leave the option out."
        else:
            try:
                option.kind.check(text)
            except BadInput as error:
                yield key, f"option {key} = {text!r}: {error}", "Correct the value."
                return
    try:
        check_supported(_preview_table(table, options), Operation.WRITE)
    except UnsupportedFeature as error:
        named = next((key for key in options if f"option {key} " in error.feature), None)
        yield named, f"{error.feature}: {error.reason}", error.remedy
    except BadInput as error:
        yield None, str(error), "Correct the options."


def _preview_table(table: TableSettings, options: dict[str, str]) -> TableContext:
    """Return a table with these options that is not stored anywhere. It has columns only for its keys."""
    names = dict.fromkeys(chain(table.primary_key, table.partition_by, ["some_column"]))
    fields = tuple(DataField(number, name, STRING) for number, name in enumerate(names))
    schema = TableSchema(
        0,
        fields,
        len(fields),
        primary_keys=tuple(table.primary_key),
        partition_keys=tuple(table.partition_by),
        options=options,
    )
    if not table.primary_key and bucket_mode(schema, TableOptions(schema.options)) is BucketMode.FIXED:
        schema = TableSchema(0, fields, len(fields), options={**schema.options, "bucket": str(UNAWARE_BUCKET)})
    return TableContext(LocalFileIO(), "/nowhere", table.name, schema, TableOptions(schema.options))
