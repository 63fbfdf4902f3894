"""Checks table options against the schema and against each other.

Each rule is one function, which raises BadInput naming the option, the reason and the remedy.

Source: Java `schema/SchemaValidation.java` and the formats' `validateDataFields`. Some rules are left to Java, for
tables that this release neither reads nor writes: options of BLOB, VECTOR and geometry columns, of primary-key indexes,
chain tables, clustering and stored reading positions (`scan.*`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tidelake.errors import BadInput
from tidelake.storage.files.file_index.index_settings import FileIndexSettings
from tidelake.storage.merge.aggregate_functions import DEFAULT_FUNCTION_OPTION, check_functions, column_aggregations
from tidelake.storage.merge.partial_update_options import PartialUpdateOptions
from tidelake.storage.merge.sequence_groups import UNORDERED_ROOTS
from tidelake.storage.model.bucketing import Bucketing, BucketMode, bucket_mode
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import ChangelogProducer, MergeEngine, TableOptions
from tidelake.storage.model.options.registry import find_option
from tidelake.storage.model.options.values import parse_map, parse_size_bytes
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.types import (
    STRING_ROOTS,
    TIMESTAMP_ROOTS,
    AtomicType,
    DataType,
    Root,
    VectorType,
    walk_types,
)

Rule = Callable[[TableSchema, TableOptions], None]

_STATS_MODE: Final = re.compile(r"none|counts|full|truncate\([1-9][0-9]*\)")
_PER_LEVEL: Final = ("file.format.per.level", "file.compression.per.level", "metadata.stats-mode.per.level")
_PAGES_OF_BUFFER: Final = 3
_FIRST_ROW: Final = MergeEngine.FIRST_ROW
_FULL_COMPACTION: Final = ChangelogProducer.FULL_COMPACTION
_LOOKUP: Final = ChangelogProducer.LOOKUP


def formats(options: TableOptions) -> dict[str, str]:
    """Return all file formats that the options name, the default included, by option."""
    named = {"file.format": options.text("file.format") or ""}
    if "changelog-file.format" in options:
        named["changelog-file.format"] = options["changelog-file.format"]
    for level, name in _levels(options, "file.format.per.level").items():
        named[f"file.format.per.level {level}"] = name
    return {option: name.strip().lower() for option, name in named.items()}


# ---------------------------------------------------------------- texts


def _texts_are_valid_in_java(_: TableSchema, options: TableOptions) -> None:
    for key, text in options.items():
        if (option := find_option(key)) is None:
            continue
        try:
            option.kind.check(text)
        except BadInput as e:
            raise BadInput(f"option {key} = {text!r}: {e}") from None
    for key in _PER_LEVEL:
        if not all(level.isdecimal() for level in _levels(options, key)):
            raise BadInput(f"option {key} = {options[key]!r}: expected level:value pairs such as '0:avro,5:parquet'")


def _levels(options: TableOptions, key: str) -> dict[str, str]:
    return parse_map(options.get(key, ""))


def _stats_modes_are_known(_: TableSchema, options: TableOptions) -> None:
    given = [(key, options[key]) for key in options if key.endswith(".stats-mode")]
    given += [("metadata.stats-mode.per.level", m) for m in _levels(options, "metadata.stats-mode.per.level").values()]
    for key, mode in given:
        if not _STATS_MODE.fullmatch(mode.lower()):
            raise BadInput(f"option {key} = {mode!r}: expected none, counts, full or truncate(n)")


def _counts_are_positive(_: TableSchema, options: TableOptions) -> None:
    _at_least(1, "target-file-row-num", options.target_file_row_num, "must be at least 1")
    snapshots = options.snapshot_num_retained_min, options.snapshot_num_retained_max
    changelogs = options.changelog_num_retained_min, options.changelog_num_retained_max
    for what, (low, high) in (("snapshot", snapshots), ("changelog", changelogs)):
        least, most = f"{what}.num-retained.min", f"{what}.num-retained.max"
        _at_least(1, least, low, f"must be at least 1, because the latest {what} is always kept")
        if low > high:
            raise BadInput(f"option {least} = {low} is more than {most} = {high}; raise the latter")


def _merge_tree_options_fit(schema: TableSchema, options: TableOptions) -> None:
    """Check the minimal sizes of a merge tree. Java opens and reads a table that breaks them, but can't write it."""
    if not schema.has_primary_key:
        return
    trigger = "num-sorted-run.compaction-trigger"
    _at_least(1, trigger, options.compaction_trigger, "must be at least 1, because a compaction leaves one sorted run")
    _at_least(2, "num-levels", options.num_levels, "must be at least 2, because compaction needs a level above level 0")
    if (threshold := options.sort_spill_threshold) is not None:
        _at_least(2, "sort-spill-threshold", threshold, "must be at least 2, because a merge needs two runs")
    pages_bytes = _PAGES_OF_BUFFER * int(options.parsed("page-size", parse_size_bytes, None))
    if options.write_buffer_size_bytes < pages_bytes:
        raise BadInput(
            f"option write-buffer-size = {options.write_buffer_size_bytes} bytes: Java writes with {_PAGES_OF_BUFFER} "
            f"pages of option page-size or more; set it to {pages_bytes} bytes or more"
        )


def _at_least(least: int, option: str, number: int, reason_and_remedy: str) -> None:
    if number < least:
        raise BadInput(f"option {option} = {number}: {reason_and_remedy}")


# ---------------------------------------------------------------- options about columns


def _bucket_options_fit(schema: TableSchema, options: TableOptions) -> None:
    Bucketing.of(schema, options)


def _formats_support_types(schema: TableSchema, options: TableOptions) -> None:
    for option, file_format in formats(options).items():
        for field in schema.fields:
            if not all(_holds(file_format, found) for found in walk_types(field.type)):
                raise BadInput(
                    f"option {option} = {file_format}: such files can't hold column {field.name!r} {field.type}; "
                    "choose parquet, or another type"
                )


def _holds(file_format: str, data_type: DataType) -> bool:
    match file_format, data_type:
        case "avro", AtomicType(root=Root.TIMESTAMP | Root.TIMESTAMP_LTZ, precision=precision):
            return precision <= 6
        case "avro", AtomicType(root=Root.TIME, precision=precision):
            return precision <= 3
        case "avro", AtomicType(root=Root.VARIANT):
            return False
        case "orc", (AtomicType(root=Root.VARIANT) | VectorType()):
            return False
        case _:
            return True


def _field_options_name_columns(schema: TableSchema, options: TableOptions) -> None:
    for key in options:
        if key.startswith("fields.") and key != DEFAULT_FUNCTION_OPTION:
            names = key.split(".")[1].split(",")
            types = [_column_type(f"option {key}", name, schema) for name in names]
            if len(names) == 1 and key.count(".") > 2 and types[0].root is Root.ROW:
                raise BadInput(f"option {key}: fields inside {names[0]!r} {types[0]} have no options; name the column")


def _sequence_fields_fit(schema: TableSchema, options: TableOptions) -> None:
    where = f"option sequence.field = {options.get('sequence.field')!r}"
    for name, count in Counter(options.sequence_fields).items():
        _column_type(where, name, schema)
        if count > 1:
            raise BadInput(f"{where}: {name!r} occurs {count} times; list it once")
        if f"fields.{name}.aggregate-function" in options:
            raise BadInput(f"{where}: {name!r} is also aggregated; unset fields.{name}.aggregate-function")
        if (found := schema.by_name[name].type).root in UNORDERED_ROOTS:
            raise BadInput(f"{where}: {name!r} is {found}, which has no order; name another column")
    if options.sequence_fields and schema.crosses_partitions:
        raise BadInput(
            f"{where}: the primary key ({', '.join(schema.primary_keys)}) lacks partition columns "
            f"({', '.join(schema.partition_keys)}), and rows of two partitions are not compared; add them to the key"
        )


def _row_kind_field_is_text(schema: TableSchema, options: TableOptions) -> None:
    if (name := options.row_kind_field) is not None:
        found = _column_type("option rowkind.field", name, schema)
        if found.root not in STRING_ROOTS:
            raise BadInput(
                f"option rowkind.field = {name!r}: the column is {found}; make it a STRING of +I, -U, +U, -D"
            )


def _record_time_is_a_time(schema: TableSchema, options: TableOptions) -> None:
    key = "record-level.time-field"
    if (name := options.get(key)) is not None:
        found = _column_type(f"option {key}", name, schema)
        if found.root not in (Root.INT, Root.BIGINT, *TIMESTAMP_ROOTS):
            raise BadInput(f"option {key} = {name!r}: the column is {found}; name an INT, BIGINT or TIMESTAMP")


def _merge_engine_fits(schema: TableSchema, options: TableOptions) -> None:
    if not schema.has_primary_key:
        return
    match options.merge_engine:
        case MergeEngine.PARTIAL_UPDATE:
            check_functions(options)
            PartialUpdateOptions.of(schema, options)
        case MergeEngine.AGGREGATION:
            check_functions(options)
            column_aggregations(schema, options)
        case _:
            pass  # the others have no options of their own


def _ignored_fields_are_columns(schema: TableSchema, options: TableOptions) -> None:
    """Check that ignored fields are columns. Java doesn't strip blanks from names, and then ignores no column."""
    key = "changelog-producer.row-deduplicate-ignore-fields"
    for name in options.get(key, "").split(","):
        if name:
            _column_type(f"option {key}", name, schema)


def _file_indexes_fit(schema: TableSchema, options: TableOptions) -> None:
    FileIndexSettings.of(options).check(schema.by_name)


def _column_type(where: str, name: str, schema: TableSchema) -> DataType:
    if name not in schema.by_name:
        known = ", ".join(schema.names)
        raise BadInput(f"{where}: no column {name!r}; the table has {known}{did_you_mean(name, schema.names)}")
    return schema.by_name[name].type


# ---------------------------------------------------------------- options about each other


@dataclass(frozen=True, slots=True)
class OptionConflict:
    """An option that is set, and a condition that conflicts with it.

    when: is called only if the option is in `options`.
    """

    option: str
    when: Callable[[TableSchema, TableOptions], bool]
    reason_and_remedy: str


def _produces(*producers: ChangelogProducer) -> Callable[[TableSchema, TableOptions], bool]:
    return lambda _, options: options.changelog_producer in producers


CONFLICTS: Final = (
    OptionConflict(
        "primary-key.nullable",
        lambda s, o: o.is_on("primary-key.nullable") and not s.has_primary_key,
        "the table has no primary key; name one, or unset the option",
    ),
    OptionConflict(
        "primary-key.nullable",
        lambda s, o: o.is_on("primary-key.nullable") and s.crosses_partitions,
        "keys that move between partitions can't be null; add the partition columns to the key, or unset the option",
    ),
    OptionConflict(
        "changelog-producer",
        lambda s, o: o.changelog_producer is not ChangelogProducer.NONE and not s.has_primary_key,
        "only primary-key tables have a changelog; name a primary key, or unset the option",
    ),
    OptionConflict(
        "changelog-producer",
        lambda _, o: o.merge_engine is _FIRST_ROW and o.changelog_producer in ("input", _FULL_COMPACTION),
        "merge-engine = first-row only allows none or lookup",
    ),
    OptionConflict(
        "sequence.field",
        lambda _, o: o.merge_engine is _FIRST_ROW,
        "merge-engine = first-row keeps the row that arrived first; unset one of them",
    ),
    OptionConflict(
        "streaming-read-overwrite",
        lambda _, o: o.streaming_read_overwrite and o.changelog_producer in (_LOOKUP, _FULL_COMPACTION),
        "changelog-producer = lookup and full-compaction show these changes too; unset one of them",
    ),
    OptionConflict(
        "streaming-read-overwrite",
        lambda s, o: o.streaming_read_overwrite and not s.has_primary_key,
        "the table has no primary key; set streaming-read-append-overwrite instead",
    ),
    OptionConflict(
        "full-compaction.delta-commits",
        _produces(_LOOKUP),
        "it can't be combined with changelog-producer = lookup; set changelog-producer to full-compaction, or unset "
        "one of them",
    ),
    OptionConflict(
        "full-compaction.delta-commits",
        lambda s, o: bucket_mode(s, o) is BucketMode.UNAWARE,
        "an append table without buckets has no full compaction; unset it",
    ),
    OptionConflict(
        "deletion-vectors.enabled",
        lambda s, o: o.deletion_vectors_enabled and o.changelog_producer is _FULL_COMPACTION,
        "it can't be combined with changelog-producer = full-compaction; set changelog-producer to lookup, or unset "
        "one of them",
    ),
    OptionConflict(
        "deletion-vectors.enabled",
        lambda _, o: o.deletion_vectors_enabled and o.merge_engine is _FIRST_ROW and not o.pk_clustering_override,
        "merge-engine = first-row deletes nothing; unset it",
    ),
    OptionConflict(
        "sequence.snapshot-ordering",
        lambda s, o: (
            o.is_on("sequence.snapshot-ordering") and not (s.has_primary_key and o.write_only and not o.sequence_fields)
        ),
        "it needs a primary key and write-only = true, and no sequence.field",
    ),
    OptionConflict(
        "row-tracking.enabled",
        lambda s, o: o.is_on("row-tracking.enabled") and bucket_mode(s, o) is not BucketMode.UNAWARE,
        "it needs an append table with bucket = -1",
    ),
    OptionConflict(
        "data-evolution.enabled",
        lambda _, o: o.is_on("data-evolution.enabled") and not o.is_on("row-tracking.enabled"),
        "it needs row-tracking.enabled = true",
    ),
)


def _options_are_compatible(schema: TableSchema, options: TableOptions) -> None:
    for conflict in CONFLICTS:
        if conflict.option in options and conflict.when(schema, options):
            raise BadInput(f"option {conflict.option} = {options[conflict.option]!r}: {conflict.reason_and_remedy}")


OPTION_RULES: Final[tuple[Rule, ...]] = (
    _texts_are_valid_in_java,
    _stats_modes_are_known,
    _counts_are_positive,
    _merge_tree_options_fit,
    _bucket_options_fit,
    _formats_support_types,
    _field_options_name_columns,
    _sequence_fields_fit,
    _row_kind_field_is_text,
    _record_time_is_a_time,
    _ignored_fields_are_columns,
    _merge_engine_fits,
    _file_indexes_fit,
    _options_are_compatible,
)
