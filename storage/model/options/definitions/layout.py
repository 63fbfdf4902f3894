"""Options of the table type, buckets, partitions, paths and branches."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    COMPACT,
    CREATE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    MERGING,
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
from tidelake.storage.model.options.values import BOOLEAN, DURATION, INT, LONG, SIZE, TEXT, one_of

_ORDER_IS_KEPT: Final = "rows of a bucket always keep their order"
_EXTERNAL: Final = "it belongs to data-file.external-paths, which writing refuses"
_CHAIN: Final = "it belongs to chain tables, which every operation refuses"
_MATERIALIZED: Final = "only Flink knows the job that it names"

LAYOUT_OPTIONS: Final[tuple[Option, ...]] = (
    supported(
        "type",
        one_of("table", "format-table", "materialized-table", "object-table", "lance-table", "iceberg-table"),
        "table",
        CREATE,
        Refusal(
            ROW_OPERATIONS,
            other_than("table", "materialized-table", example="object-table"),
            "only tables that store rows themselves are supported",
            USE_JAVA,
        ),
        immutable=True,
        never_changes=True,
    ),
    deciding_rows(supported("bucket", INT, "-1", CREATE | MERGING)),
    supported("bucket-key", TEXT, None, READ | WRITE, immutable=True),
    supported("bucket-function.type", one_of("default", "mod", "hive"), "default", READ | WRITE, immutable=True),
    without_effect("bucket-append-ordered", BOOLEAN, "true", _ORDER_IS_KEPT),
    supported("dynamic-bucket.target-row-num", LONG, "2000000", WRITE),
    supported("dynamic-bucket.initial-buckets", INT, None, WRITE, immutable=True),
    supported("dynamic-bucket.max-buckets", INT, "-1", WRITE),
    supported("dynamic-bucket.assigner-parallelism", INT, None, WRITE),
    supported("cross-partition-upsert.index-ttl", DURATION, None, WRITE),
    supported("cross-partition-upsert.bootstrap-parallelism", INT, "10", WRITE),
    supported("postpone.batch-write-fixed-bucket", BOOLEAN, "true", WRITE),
    unsupported(
        "postpone.merge-on-read",
        BOOLEAN,
        "false",
        Refusal(READ, IS_TRUE, "postponed rows are not merged with the others", "Unset it"),
    ),
    supported("postpone.batch-write-fixed-bucket.max-parallelism", INT, "2048", WRITE),
    supported(
        "postpone.default-bucket-num",
        INT,
        "1",
        WRITE | COMPACT,
        derived="computed from the next two options",
    ),
    supported("postpone.target-row-num-per-bucket", LONG, None, WRITE | COMPACT),
    supported("postpone.target-size-per-bucket", SIZE, "1 gb", WRITE | COMPACT),
    supported("postpone.batch-write-fixed-bucket.rescale-load-factor", INT, "32", WRITE, release="after 2.0.0"),
    supported("partition", TEXT, None, CREATE, immutable=True),
    deciding_rows(supported("partition.default-name", TEXT, "__DEFAULT_PARTITION__", READ | WRITE)),
    deciding_rows(supported("partition.legacy-name", BOOLEAN, "true", READ | WRITE)),
    supported("data-file.path-directory", TEXT, None, READ | FILE_WRITING_OPERATIONS, immutable=True),
    unsupported(
        "data-file.external-paths",
        TEXT,
        None,
        Refusal(
            FILE_WRITING_OPERATIONS,
            is_set("file:///elsewhere"),
            "files would be written to the table's own directory",
            "Unset it",
        ),
    ),
    without_effect(
        "data-file.external-paths.strategy",
        one_of("none", "specific-fs", "round-robin", "entropy-inject", "weight-robin"),
        "none",
        _EXTERNAL,
    ),
    without_effect("data-file.external-paths.specific-fs", TEXT, None, _EXTERNAL),
    without_effect("data-file.external-paths.weights", TEXT, None, _EXTERNAL),
    supported("index-file-in-data-file-dir", BOOLEAN, "false", FILE_WRITING_OPERATIONS, immutable=True),
    supported("path", TEXT, None, CREATE, never_changes=True),
    supported("branch", TEXT, "main", READING | FILE_WRITING_OPERATIONS),
    supported("auto-create", BOOLEAN, "false", CREATE),
    supported("alter-column-null-to-not-null.disabled", BOOLEAN, "true", CREATE),
    supported("disable-explicit-type-casting", BOOLEAN, "false", CREATE),
    supported("add-column-before-partition", BOOLEAN, "false", CREATE),
    without_effect("comment", TEXT, None, "a table's comment is not an option", release="Flink"),
    unsupported(
        "chain-table.enabled",
        BOOLEAN,
        "false",
        Refusal(ROW_OPERATIONS, IS_TRUE, "rows are in several branches", USE_JAVA),
    ),
    without_effect("chain-table.chain-partition-keys", TEXT, None, _CHAIN),
    without_effect("chain-table.streaming.merge-snapshot", BOOLEAN, "false", _CHAIN),
    without_effect("chain-table.split.key-range-enabled", BOOLEAN, "true", _CHAIN),
    without_effect("scan.fallback-snapshot-branch", TEXT, None, _CHAIN),
    without_effect("scan.fallback-delta-branch", TEXT, None, _CHAIN),
    supported("materialized-table.definition-query", TEXT, None, CREATE),
    supported("materialized-table.interval-freshness", TEXT, None, CREATE),
    supported(
        "materialized-table.interval-freshness.time-unit", one_of("second", "minute", "hour", "day"), None, CREATE
    ),
    supported("materialized-table.logical-refresh-mode", one_of("continuous", "full", "automatic"), None, CREATE),
    supported("materialized-table.refresh-mode", one_of("continuous", "full", "automatic"), None, CREATE),
    supported("materialized-table.refresh-status", one_of("initializing", "activated", "suspended"), None, CREATE),
    without_effect("materialized-table.refresh-handler-description", TEXT, None, _MATERIALIZED),
    without_effect("materialized-table.refresh-handler-bytes", TEXT, None, _MATERIALIZED),
)
