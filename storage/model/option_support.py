"""Checks which features of a table this release lacks, and which operations they prevent.

An option must not be ignored silently. The operation that it would change raises an error with the reason and a remedy;
other operations still work. `tidelake.storage.model.options.registry` defines these options. Creating or altering a
table refuses what a later operation would refuse. Existing tables of this kind can be opened and dropped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tidelake.errors import UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger
from tidelake.storage.model.bucketing import BucketMode, bucket_mode
from tidelake.storage.model.definition import FENCE, REWRITTEN
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.iceberg.schemas import unpublishable_types
from tidelake.storage.model.options import MergeEngine, Operation, TableOptions
from tidelake.storage.model.options.option import FILE_WRITING_OPERATIONS, USE_JAVA, Option
from tidelake.storage.model.options.registry import TABLE_REGISTRY, OptionRegistry, find_option
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, Root, walk_types

_log = get_logger(__name__)

# Operations that a new table must support. COMPACT is not included: Java Paimon may compact a write-only table.
_OPERATIONS_OF_NEW_TABLES: Final = (Operation.CREATE, Operation.READ, Operation.CHANGES, Operation.WRITE)


@dataclass(frozen=True, slots=True)
class Limitation:
    """A property of a table that prevents an operation.

    feature: the option with its value, or the column.
    """

    feature: str
    operation: Operation
    reason: str
    remedy: str


def check_supported(context: TableContext, operation: Operation) -> None:
    """Raise UnsupportedFeature for the first property of the table that would make the operation wrong.

    Options without effect, and options that Paimon doesn't know, are logged once in each process.
    """
    if operation is Operation.WRITE and context.options.is_on("metastore.partitioned-table"):
        _check_partitions_are_kept(context)
    for found in _limitations(context.schema, context.options, context.branch, operation):
        raise UnsupportedFeature(
            f"{context.name}: {found.feature}", f"cannot {found.operation}: {found.reason}", found.remedy
        )
    log_options_without_effect(TABLE_REGISTRY, context.options)


def _check_partitions_are_kept(context: TableContext) -> None:
    commits = context.snapshot_commit
    if context.schema.partition_keys and not (commits is not None and commits.keeps_partitions):
        raise UnsupportedFeature(
            f"{context.name}: option metastore.partitioned-table = true",
            f"cannot {Operation.WRITE}: new partitions would be missing in the metastore",
            "Open the table through its catalog (metastore = hive), or unset the option",
        )


def check_creatable(name: str, schema: TableSchema) -> None:
    """Raise UnsupportedFeature if reading or writing the new table would be refused."""
    for found in _limitations_of_later_operations(schema, DEFAULT_BRANCH):
        raise UnsupportedFeature(f"{name}: {found.feature}", f"cannot create: {_later(found)}", found.remedy)


def check_alterable(name: str, old: TableSchema, new: TableSchema, branch: str) -> None:
    """Raise UnsupportedFeature for problems that the change would add. Existing problems are accepted."""
    known = set(_limitations_of_later_operations(old, branch))
    for found in _limitations_of_later_operations(new, branch):
        if found not in known:
            raise UnsupportedFeature(f"{name}: {found.feature}", f"cannot alter: {_later(found)}", found.remedy)


def _later(found: Limitation) -> str:
    if found.operation is Operation.CREATE:
        return found.reason
    return f"{found.operation} would be refused then, because {found.reason}"


# ---------------------------------------------------------------- the limitations of a table


def _limitations_of_later_operations(schema: TableSchema, branch: str) -> Iterator[Limitation]:
    options = TableOptions(schema.options)
    for operation in _OPERATIONS_OF_NEW_TABLES:
        yield from _limitations(schema, options, branch, operation)


def _limitations(schema: TableSchema, options: TableOptions, branch: str, operation: Operation) -> Iterator[Limitation]:
    for key in options:
        if (option := find_option(key)) is not None:
            yield from _refused(option, key, options, operation)
    stored_branch = options.get("branch", branch)
    if stored_branch != branch:
        yield Limitation(
            f"option branch = {stored_branch}",
            operation,
            f"this is branch {branch} of the table",
            f"Open NAME$branch_{stored_branch}, and unset the option",
        )
    yield from _bucket_limitations(schema, options, operation)
    for field in schema.fields:
        yield from _blob_limitations(schema, options, field, operation)
    if options.iceberg_enabled and operation in FILE_WRITING_OPERATIONS:
        yield from _iceberg_limitations(schema, options, operation)


def _iceberg_limitations(schema: TableSchema, options: TableOptions, operation: Operation) -> Iterator[Limitation]:
    """Yield what Iceberg readers could not read, or would read wrongly."""
    where = f"option metadata.iceberg.storage = {options.iceberg_storage}"
    if options.data_evolution_enabled:
        yield Limitation(
            f"{where} with data-evolution.enabled",
            operation,
            "the columns of a row are in several files, which Iceberg readers can't put together",
            "Unset one of the two",
        )
    if not schema.has_primary_key and options.deletion_vectors_enabled and not options.iceberg_has_deletion_vectors:
        yield Limitation(
            f"{where} with deletion-vectors.enabled",
            operation,
            "Iceberg readers would see deleted rows",
            "Set metadata.iceberg.format-version = 3 and deletion-vectors.bitmap64 = true",
        )
    for field, reason in unpublishable_types(schema, options.iceberg_format_version):
        yield Limitation(
            f"{where} with column {field.name} {field.type}",
            operation,
            reason,
            "Use another type for the column, or unset the option",
        )


def _blob_limitations(
    schema: TableSchema, options: TableOptions, field: DataField, operation: Operation
) -> Iterator[Limitation]:
    where = f"column {field.name} {field.type}"
    if not any(part.root is Root.BLOB for part in walk_types(field.type)):
        return
    if field.type.root is not Root.BLOB:
        yield Limitation(where, operation, "this release does not support arrays and maps of blobs", USE_JAVA)
    elif schema.has_primary_key or not options.data_evolution_enabled:
        yield Limitation(where, operation, "its values are in separate files, which need data evolution", USE_JAVA)
    elif operation is Operation.COMPACT:
        yield Limitation(where, operation, "its values are in separate files", USE_JAVA)


def _refused(option: Option, key: str, options: TableOptions, operation: Operation) -> Iterator[Limitation]:
    for refusal in option.refusals:
        if operation in refusal.operations and refusal.when.holds(key, options):
            yield Limitation(f"option {key} = {options[key]}", operation, refusal.reason, refusal.remedy)


def _bucket_limitations(schema: TableSchema, options: TableOptions, operation: Operation) -> Iterator[Limitation]:
    mode = bucket_mode(schema, options)
    if mode is BucketMode.POSTPONE and operation is Operation.COMPACT:
        yield Limitation(
            "option bucket = -2 (postpone)",
            operation,
            "rows are staged outside of the buckets, and only a compaction may move them into buckets",
            "Compact the table (Table.compact or `tidelake table compact`) without other arguments",
        )
    keeps_old_rows = options.merge_engine is MergeEngine.DEDUPLICATE and options.ignore_delete
    if operation is Operation.WRITE and mode is BucketMode.CROSS_PARTITION and keeps_old_rows:
        yield Limitation(
            "option ignore-delete on a table with bucket = -1 whose primary key leaves out a partition column",
            operation,
            "a key that moves to another partition is deleted in the old one",
            "Unset it, or put the partition columns into the primary key",
        )


# ---------------------------------------------------------------- logged once

_logged: set[str] = {REWRITTEN, FENCE}  # not Paimon's, but ours
_logged_lock = env.Lock()


def log_options_without_effect(registry: OptionRegistry, options: Mapping[str, str]) -> None:
    """Log each such option once in a process, so that a typo or an option of Flink is not ignored silently."""
    for key, value in options.items():
        option = registry.find(key)
        if option is None:
            if _is_first(key):
                _log.warning("option unknown", option=key, effect="none: Paimon has no option of this name either")
        elif option.no_effect is not None and value != option.default and _is_first(key):
            _log.warning("option without effect", option=key, why=option.no_effect)


def _is_first(key: str) -> bool:
    with _logged_lock:
        if key in _logged:
            return False
        _logged.add(key)
        return True
