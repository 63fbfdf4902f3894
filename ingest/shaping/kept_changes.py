"""What a table keeps of changes: deleted rows, every change as a row (`mode: append`), or versions (`mode: scd2`)."""

from __future__ import annotations

from collections.abc import Iterator

from tidelake.errors import UnsupportedFeature
from tidelake.ingest.secrets import Secret
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.shaping.shaped_columns import ShapedColumns
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.format import POSTPONE_BUCKET
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.model.table import TableContext


def shape_text(table: TableSettings, salt: Secret | None) -> str:
    """Return the text that `plan` prints: what the table takes of its records, and what it keeps of changes."""
    return "; ".join(filter(None, (str(ShapedColumns.of(table, salt)), kept_changes_text(table))))


def kept_changes_text(table: TableSettings) -> str:
    """Return what a table keeps of changes: `deleted rows stay, with the time in deleted_at`; "" by default."""
    if table.mode == "append":
        return "each change is a row"
    if table.mode == "scd2":
        return f"each version of a row stays, from {table.valid_from_column} to {table.valid_to_column}"
    return f"deleted rows stay, with the time in {table.deleted_at_column}" if table.deletes == "soft" else ""


def kept_changes_errors(table: TableSettings) -> Iterator[tuple[str, str, str]]:
    """Yield (setting, reason, remedy) of each setting that contradicts `mode`."""
    if table.mode == "scd2":
        yield from _version_errors(table)
    if table.mode != "append":
        return
    if table.deletes == "soft":
        yield "deletes", "a history has each delete as a row of its own", "Leave out `deletes: soft`."
    if table.primary_key:
        yield "primary_key", "a history has many rows of one key", "Leave out `primary_key`."
    if table.filter is not None:
        yield "filter", "a history without some changes of a row can't be followed", "Filter it when it is read."


def _version_errors(table: TableSettings) -> Iterator[tuple[str, str, str]]:
    if table.deletes == "soft":
        yield "deletes", "the versions of a deleted row stay anyway", "Leave out `deletes: soft`."
    if table.filter is not None:
        yield "filter", "times between versions would look like deletes", "Filter it when it is read."


def check_kept_changes(settings: TableSettings, table: TableContext) -> None:
    """Raise UnsupportedFeature for a table that can't keep what its settings say."""
    schema, options = table.schema, table.options
    if settings.mode == "append" and schema.has_primary_key:
        raise UnsupportedFeature(
            f"`mode: append` of {table.name}",
            f"the table has the primary key {', '.join(schema.primary_keys)}, so it has only one row of a key",
            "Write the history to another table, or leave out `mode`",
        )
    if settings.mode == "scd2":
        _check_versions(settings, table)
    if settings.deletes != "soft":
        return
    replaces = options.merge_engine is MergeEngine.DEDUPLICATE and not options.sequence_fields
    if (
        not (schema.has_primary_key and replaces)
        or options.ignore_delete
        or options.changelog_producer is ChangelogProducer.INPUT
        or bucket_mode(schema, schema.options) is BucketMode.POSTPONE  # a lookup does not see staged rows
    ):
        raise UnsupportedFeature(
            f"`deletes: soft` of {table.name}",
            "a delete must replace the row of its key, which the table doesn't allow",
            "Use a table with a primary key and `merge-engine: deduplicate`, another `changelog-producer` than input, "
            f"another `bucket` than {POSTPONE_BUCKET}, and neither `sequence.field` nor `ignore-delete`, or leave out "
            "`deletes`",
        )
    if settings.deleted_at_column in (*schema.primary_keys, *schema.partition_keys):
        raise UnsupportedFeature(
            f"`deleted_at_column` of {table.name}",
            f"column {settings.deleted_at_column} is part of a key, and a delete would move the row",
            "Choose another column",
        )


def _check_versions(settings: TableSettings, table: TableContext) -> None:
    schema, options, valid_from = table.schema, table.options, settings.valid_from_column
    feature = f"`mode: scd2` of {table.name}"
    if valid_from not in schema.primary_keys or len(schema.primary_keys) == 1:
        found = f"({', '.join(schema.primary_keys)})" if schema.has_primary_key else "missing"
        raise UnsupportedFeature(
            feature,
            f"its primary key must be that of the source's rows and {valid_from}, but it is {found}",
            "Set `primary_key` if the records have no key, or write the versions to another table",
        )
    if (
        options.merge_engine is not MergeEngine.DEDUPLICATE
        or options.sequence_fields
        or options.ignore_delete
        or options.changelog_producer is ChangelogProducer.INPUT
        or bucket_mode(schema, schema.options) is BucketMode.POSTPONE
    ):
        raise UnsupportedFeature(
            feature,
            "the end of a version must replace its row, which the table doesn't allow",
            "Use `merge-engine: deduplicate`, another `changelog-producer` than input, another `bucket` than "
            f"{POSTPONE_BUCKET}, and neither `sequence.field` nor `ignore-delete`, or leave out `mode`",
        )
    for column in (settings.valid_to_column, settings.current_column):
        if column in (*schema.primary_keys, *schema.partition_keys):
            raise UnsupportedFeature(
                feature,
                f"column {column} is part of a key, and the end of a version would move its row",
                "Choose another column",
            )
