"""Options of scans, changes and consumers."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    CHANGES,
    IS_TRUE,
    PERFORMANCE_ONLY,
    READ,
    READING,
    Option,
    Refusal,
    is_set,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, DURATION, INT, LONG, SIZE, TEXT, one_of

_FAILS_FAST: Final = "a file of the other branch that can't be read is always an error"
_READ_TAG: Final = "a read whose snapshot expires raises an error and never returns other rows"
_LOOKUP_JOIN: Final = "it belongs to lookup joins of Flink"


READING_OPTIONS: Final[tuple[Option, ...]] = (
    supported("scan.snapshot-id", LONG, None, READING),
    supported("scan.timestamp-millis", LONG, None, READING, fallbacks=("log.scan.timestamp-millis",)),
    supported("scan.timestamp", TEXT, None, READING),
    supported(
        "scan.mode",
        one_of(
            "default",
            "latest-full",
            "full",
            "latest",
            "compacted-full",
            "from-timestamp",
            "from-creation-timestamp",
            "from-file-creation-time",
            "from-snapshot",
            "from-snapshot-full",
            "incremental",
            "latest-delta",
        ),
        "default",
        READING,
        fallbacks=("log.scan",),
    ),
    supported("scan.tag-name", TEXT, None, READ),
    supported("scan.version", TEXT, None, READ),
    supported("scan.watermark", LONG, None, READ),
    supported("scan.file-creation-time-millis", LONG, None, READING),
    supported("scan.creation-time-millis", LONG, None, READING),
    supported("scan.bucket", INT, None, READING),
    supported("scan.bounded.watermark", LONG, None, CHANGES),
    supported("incremental-between", TEXT, None, READING),
    supported("incremental-between-timestamp", TEXT, None, READING),
    supported("incremental-to-auto-tag", TEXT, None, READING),
    supported("incremental-between-scan-mode", one_of("auto", "delta", "changelog", "diff"), "auto", READING),
    supported("incremental-between-tag-to-snapshot", BOOLEAN, "false", READING),
    unsupported(
        "stream-scan-mode",
        one_of("none", "compact-bucket-table", "file-monitor"),
        "none",
        Refusal(READING, other_than("none", example="file-monitor"), "it is for Java's own jobs", "Unset it"),
    ),
    unsupported(
        "batch-scan-mode",
        one_of("none", "compact"),
        "none",
        Refusal(READ, other_than("none", example="compact"), "it is for Java's own jobs", "Unset it"),
    ),
    supported("scan.fallback-branch", TEXT, None, READ),
    supported("scan.primary-branch", TEXT, None, READ),
    without_effect("scan.fallback-branch.read-fail-fast", BOOLEAN, "false", _FAILS_FAST),
    unsupported(
        "scan.ignore-corrupt-files",
        BOOLEAN,
        "false",
        Refusal(READING, IS_TRUE, "rows are never left out: a file that is lost or damaged is an error", "Unset it"),
    ),
    unsupported(
        "scan.ignore-lost-files",
        BOOLEAN,
        "false",
        Refusal(READING, IS_TRUE, "rows are never left out: a file that is lost or damaged is an error", "Unset it"),
    ),
    unsupported(
        "scan.partitions",
        TEXT,
        None,
        Refusal(READING, is_set("p=1"), "rows of all partitions are read", "Unset it, and pass filter= to scan()"),
        fallbacks=("lookup.dynamic-partition",),
    ),
    supported("streaming-read-overwrite", BOOLEAN, "false", CHANGES),
    supported("streaming-read-append-overwrite", BOOLEAN, "false", CHANGES),
    supported("streaming.read.snapshot.delay", DURATION, None, CHANGES, unset="0 ms"),
    supported("continuous.discovery-interval", DURATION, "10 s", CHANGES),
    supported("consumer-id", TEXT, None, CHANGES),
    supported("consumer.ignore-progress", BOOLEAN, "false", CHANGES),
    supported("consumer.mode", one_of("exactly-once", "at-least-once"), "exactly-once", CHANGES),
    supported("source.split.target-size", SIZE, "128 mb", READ),
    supported("source.split.open-file-cost", SIZE, "4 mb", READ),
    without_effect("scan.max-splits-per-task", INT, "10", PERFORMANCE_ONLY),
    without_effect("scan.manifest.parallelism", INT, None, PERFORMANCE_ONLY),
    unsupported(
        "scan.plan-sort-partition",
        BOOLEAN,
        "false",
        Refusal(
            READING, IS_TRUE, "partitions are not read in the order of their values", "Unset it, and sort the rows"
        ),
    ),
    without_effect("scan.plan-auto-tag-for-read.time-retained", DURATION, None, _READ_TAG),
    supported("table-read.sequence-number.enabled", BOOLEAN, "false", READING),
    without_effect("lookup.cache-rows", LONG, "10000", _LOOKUP_JOIN),
    without_effect("lookup.continuous.discovery-interval", DURATION, None, _LOOKUP_JOIN),
    without_effect("lookup.blob-as-descriptor", BOOLEAN, "false", _LOOKUP_JOIN),
    without_effect("read.native.*", TEXT, None, PERFORMANCE_ONLY, release="pypaimon"),
)
