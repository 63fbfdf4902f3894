"""Options of maintenance jobs: partitions, tags, a metastore."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    EXPIRE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    READING,
    USE_JAVA,
    WRITE,
    Option,
    Refusal,
    is_set,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, DURATION, INT, TEXT, one_of

_OF_METASTORE: Final = "a directory keeps no partitions for tags"
_MARK_DONE: Final = "it belongs to ways of marking partitions as done that writing refuses"
_STATISTICS: Final = "it only reports the size of partitions to a metastore"

MAINTENANCE_OPTIONS: Final[tuple[Option, ...]] = (
    supported("partition.expiration-time", DURATION, None, FILE_WRITING_OPERATIONS),
    supported(
        "partition.expiration-strategy", one_of("values-time", "update-time"), "values-time", FILE_WRITING_OPERATIONS
    ),
    supported("partition.expiration-check-interval", DURATION, "1 h", FILE_WRITING_OPERATIONS),
    supported("partition.expiration-max-num", INT, "100", FILE_WRITING_OPERATIONS),
    supported("partition.expiration-batch-size", INT, None, FILE_WRITING_OPERATIONS),
    supported("partition.timestamp-formatter", TEXT, None, FILE_WRITING_OPERATIONS),
    supported("partition.timestamp-pattern", TEXT, None, FILE_WRITING_OPERATIONS),
    supported("partition.timestamp-format.strict", BOOLEAN, "false", WRITE),
    supported("end-input.check-partition-expire", BOOLEAN, "false", WRITE),
    supported("tag.automatic-creation", one_of("none", "process-time", "watermark", "batch"), "none", WRITE),
    supported("tag.create-success-file", BOOLEAN, "false", WRITE),
    supported("tag.creation-period", one_of("daily", "hourly", "two-hours"), "daily", WRITE | READING),
    supported("tag.creation-delay", DURATION, "0 ms", WRITE),
    supported(
        "tag.period-formatter",
        one_of("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
        WRITE | READING,
    ),
    supported("tag.creation-period-duration", DURATION, None, WRITE | READING),
    supported("tag.num-retained-max", INT, None, WRITE),
    supported("tag.default-time-retained", DURATION, None, WRITE),
    supported("tag.time-expire-enabled", BOOLEAN, "true", EXPIRE),
    supported("tag.automatic-completion", BOOLEAN, "false", WRITE),
    supported("tag.batch.customized-name", TEXT, None, WRITE),
    unsupported(
        "snapshot.watermark-idle-timeout",
        DURATION,
        None,
        Refusal(
            WRITE,
            is_set("1 h"),
            "without new rows no snapshot is made for a tag: it is created with the next commit",
            "Unset it",
        ),
    ),
    supported("sink.watermark-time-zone", TEXT, "UTC", WRITE),
    supported("sink.process-time-zone", TEXT, None, WRITE),
    without_effect("metastore.tag-to-partition", TEXT, None, _OF_METASTORE),
    supported("partition.end-input-to-done", BOOLEAN, "false", WRITE),
    unsupported(
        "partition.idle-time-to-done",
        DURATION,
        None,
        Refusal(WRITE, is_set("1 h"), "partitions would not be marked as done", "Unset it, or write with Java Paimon"),
    ),
    unsupported(
        "partition.mark-done-action",
        TEXT,
        "success-file",
        Refusal(
            WRITE,
            other_than("success-file", example="mark-event"),
            "events and partitions that are done are not stored, and classes and addresses are not called",
            "Set success-file",
        ),
    ),
    without_effect("partition.mark-done-action.custom.class", TEXT, None, _MARK_DONE),
    without_effect("partition.mark-done-action.http.url", TEXT, None, _MARK_DONE),
    without_effect("partition.mark-done-action.http.params", TEXT, None, _MARK_DONE),
    without_effect("partition.mark-done-action.mode", one_of("process-time", "watermark"), "process-time", _MARK_DONE),
    without_effect("partition.time-interval", DURATION, None, _MARK_DONE),
    without_effect("partition.mark-done.recover-from-state", BOOLEAN, "true", _MARK_DONE),
    without_effect("partition.idle-time-to-report-statistic", DURATION, "0 ms", _STATISTICS),
    supported("metastore.partitioned-table", BOOLEAN, "false", WRITE),
    unsupported(
        "metastore.tag-to-partition.preview",
        one_of("none", "process-time", "watermark", "batch"),
        "none",
        Refusal(
            WRITE,
            other_than("none", example="process-time"),
            "the metastore would lack the partition",
            "Unset it, or write with Java Paimon",
        ),
    ),
    unsupported(
        "query-auth.enabled",
        BOOLEAN,
        "false",
        Refusal(READING, IS_TRUE, "rows and columns may be hidden from you", USE_JAVA),
    ),
)
