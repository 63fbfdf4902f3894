"""What all files of a table have in common: the key of their rows, their buckets, and how rows of a key become one.

ALTER changes none of it once there are rows; a rewrite of all rows (`tidelake.compaction.table_rewrite`) does. The
number of buckets and the file format are no part of it: files that differ in them can be read and written together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.model.bucketing import BucketFunction, Bucketing, BucketMode
from tidelake.storage.model.options import MergeEngine, TableOptions
from tidelake.storage.model.options.renamed_columns import rename_in_options
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import DataType, nullable

REWRITTEN: Final = "tidelake.rewritten-from"
"""Option of a schema: the version before the last rewrite. Files of it may exist, if the rewrite is not finished."""

FENCE: Final = "tidelake.rewrite-until"
"""Option of a schema: until this time, in epoch milliseconds, only the job that rewrites the table may change rows."""


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a table in one version of its schema.

    keys: field id and type (nullable) of each column of the primary key, without partition columns.
    bucket_keys: field ids of the columns that determine the bucket.
    """

    keys: tuple[tuple[int, DataType], ...]
    mode: BucketMode
    function: BucketFunction
    bucket_keys: tuple[int, ...]
    merge_engine: MergeEngine

    @classmethod
    def of(cls, schema: TableSchema) -> Definition:
        """Raise BadInput for options that contradict each other."""
        options = TableOptions(schema.options)
        bucketing = Bucketing.of(schema, options)
        return cls(
            tuple((f.id, nullable(f.type)) for f in schema.key_fields),
            bucketing.mode,
            bucketing.function,
            tuple(f.id for f in schema.select(bucketing.key_columns)),
            options.merge_engine,
        )


def may_have_older_files(schema: TableSchema, first: TableSchema) -> bool:
    """Return whether files of another definition may exist: after a rewrite that did not finish.

    first: version 0 of the schema. Releases that rewrote only for wider keys left no option.
    """
    return REWRITTEN in schema.options or (schema.has_primary_key and not schema.has_same_keys(first))


def with_definition_of(schema: TableSchema, older: TableSchema) -> TableSchema:
    """Return the schema with the key, the key's types, the buckets and the merge engine of an older version.

    Its other columns and their names stay: the table may have been altered since. Columns of the old key exist: a
    column of the key can't be dropped until the rewrite that frees it is finished.
    """
    keys = {f.id: f.type for f in older.select(older.primary_keys)}
    fields = tuple(replace(f, type=keys.get(f.id, f.type)) for f in schema.fields)
    names = {f.id: f.name for f in fields}
    options: Mapping[str, str] = older.options
    for before in older.fields:
        if (name := names.get(before.id, before.name)) != before.name:
            options = rename_in_options(options, before.name, name)
    primary_keys = tuple(names[field_id] for field_id in keys if field_id in names)
    return replace(schema, fields=fields, primary_keys=primary_keys, options=options)


def fenced_until_ms(options: Mapping[str, str]) -> int | None:
    """Return until when a rewrite keeps other writers out, in epoch milliseconds; None if it doesn't, or no longer."""
    text = options.get(FENCE)
    until_ms = int(text) if text is not None and text.isdigit() else 0
    return until_ms if until_ms > epoch_ms() else None
