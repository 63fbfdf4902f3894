"""Options of keys, merge engines, columns and changelogs."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    CHANGES,
    CREATE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    MERGING,
    PERFORMANCE_ONLY,
    READ,
    READING,
    ROW_OPERATIONS,
    USE_JAVA,
    WRITE,
    Option,
    Refusal,
    deciding_rows,
    is_set,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import (
    BOOLEAN,
    COLUMNS,
    DURATION,
    EXACT_COLUMNS,
    INT,
    SIZE,
    TEXT,
    WORD,
    one_of,
)

_NO_SQL: Final = "it belongs to DELETE of SQL engines"

MERGE_OPTIONS: Final[tuple[Option, ...]] = (
    supported(
        "merge-engine",
        one_of("deduplicate", "partial-update", "aggregation", "first-row"),
        "deduplicate",
        MERGING,
        immutable=True,
    ),
    deciding_rows(supported("sequence.field", COLUMNS, None, MERGING)),
    deciding_rows(supported("sequence.field.sort-order", one_of("ascending", "descending"), "ascending", MERGING)),
    supported("rowkind.field", TEXT, None, WRITE, immutable=True),
    deciding_rows(
        supported(
            "ignore-delete",
            BOOLEAN,
            "false",
            FILE_WRITING_OPERATIONS,
            fallbacks=(
                "first-row.ignore-delete",
                "deduplicate.ignore-delete",
                "partial-update.ignore-delete",
            ),
        )
    ),
    deciding_rows(supported("ignore-update-before", BOOLEAN, "false", FILE_WRITING_OPERATIONS)),
    supported("aggregation.remove-record-on-delete", BOOLEAN, "false", MERGING, immutable=True),
    supported("partial-update.remove-record-on-delete", BOOLEAN, "false", MERGING, immutable=True),
    supported("partial-update.remove-record-on-sequence-group", EXACT_COLUMNS, None, MERGING, immutable=True),
    supported("primary-key", TEXT, None, CREATE, immutable=True),
    supported("primary-key.nullable", BOOLEAN, "false", CREATE | READ | WRITE, immutable=True, release="after 2.0.0"),
    unsupported(
        "sequence.snapshot-ordering",
        BOOLEAN,
        "false",
        Refusal(ROW_OPERATIONS, IS_TRUE, "rows would win in the wrong order", "Use sequence.field"),
        immutable=True,
    ),
    unsupported(
        "pk-clustering-override",
        BOOLEAN,
        "false",
        Refusal(ROW_OPERATIONS, IS_TRUE, "files are not sorted by the primary key", USE_JAVA),
        immutable=True,
    ),
    unsupported(
        "key-value.sequence_number.enabled",
        BOOLEAN,
        "false",
        Refusal(READING, IS_TRUE, "rows would have an additional column _SEQUENCE_NUMBER", "Unset it"),
    ),
    unsupported(
        "upsert-key",
        TEXT,
        None,
        Refusal(
            WRITE,
            is_set("id"),
            "rows would be added and would not replace the rows of the same key",
            "Create the table with a primary key, or write with Java Paimon",
        ),
    ),
    deciding_rows(supported("record-level.expire-time", DURATION, None, FILE_WRITING_OPERATIONS)),
    deciding_rows(supported("record-level.time-field", TEXT, None, FILE_WRITING_OPERATIONS)),
    deciding_rows(supported("fields.default-aggregate-function", TEXT, None, MERGING)),
    deciding_rows(supported("fields.<column>.aggregate-function", TEXT, None, MERGING)),
    deciding_rows(supported("fields.<column>.sequence-group", TEXT, None, MERGING)),
    deciding_rows(supported("fields.<column>.ignore-retract", BOOLEAN, None, MERGING)),
    deciding_rows(supported("fields.<column>.distinct", BOOLEAN, None, MERGING)),
    deciding_rows(supported("fields.<column>.list-agg-delimiter", TEXT, None, MERGING, unset=",")),
    deciding_rows(supported("fields.<column>.nested-key", TEXT, None, MERGING)),
    deciding_rows(
        supported(
            "fields.<column>.nested-key-null-strategy",
            one_of("merge", "ignore", "error"),
            None,
            MERGING,
            unset="merge",
        )
    ),
    deciding_rows(supported("fields.<column>.nested-sequence-field", TEXT, None, MERGING)),
    deciding_rows(supported("fields.<column>.count-limit", INT, None, MERGING, unset="2147483647")),
    deciding_rows(supported("fields.<column>.ts-field", TEXT, None, MERGING)),
    supported("fields.<column>.stats-mode", WORD, None, FILE_WRITING_OPERATIONS),
    unsupported(
        "fields.<column>.map.storage-layout",
        one_of("default", "shared-shredding"),
        "default",
        Refusal(
            ROW_OPERATIONS,
            other_than("default", example="shared-shredding"),
            "files store such a map in columns of another form",
            USE_JAVA,
        ),
    ),
    without_effect(
        "fields.<column>.map.shared-shredding.max-columns",
        INT,
        "256",
        "it belongs to fields.<column>.map.storage-layout = shared-shredding, which every operation refuses",
    ),
    without_effect(
        "fields.<column>.map.shared-shredding.column-placement-policy",
        TEXT,
        None,
        "it belongs to fields.<column>.map.storage-layout = shared-shredding, which every operation refuses",
    ),
    without_effect(
        "fields.<column>.pk-<index>.*",
        TEXT,
        None,
        "it belongs to the indexes of pk-….index.columns, which writing refuses",
    ),
    deciding_rows(
        supported(
            "changelog-producer",
            one_of("none", "input", "full-compaction", "lookup"),
            "none",
            CHANGES | FILE_WRITING_OPERATIONS,
        )
    ),
    supported("changelog-producer.row-deduplicate", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("changelog-producer.row-deduplicate-ignore-fields", TEXT, None, FILE_WRITING_OPERATIONS),
    supported("changelog-file.format", WORD, None, FILE_WRITING_OPERATIONS),
    supported("changelog-file.compression", WORD, None, FILE_WRITING_OPERATIONS),
    supported("changelog-file.prefix", TEXT, "changelog-", FILE_WRITING_OPERATIONS),
    supported("changelog-file.stats-mode", WORD, None, FILE_WRITING_OPERATIONS),
    supported("force-lookup", BOOLEAN, "false", FILE_WRITING_OPERATIONS, immutable=True),
    without_effect("delete.force-produce-changelog", BOOLEAN, "false", _NO_SQL),
    without_effect("local-merge-buffer-size", SIZE, None, PERFORMANCE_ONLY),
    without_effect("lookup.merge-buffer-size", SIZE, "8 mb", PERFORMANCE_ONLY),
    without_effect("lookup.merge-records-threshold", INT, "1024", PERFORMANCE_ONLY),
)
