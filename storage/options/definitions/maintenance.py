"""Options of maintenance jobs: partitions, tags, a metastore."""

from __future__ import annotations

from typing import Final

from storage.options.definitions.reasons import USE_JAVA
from storage.options.option import (
    EXPIRE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    READING,
    WRITE,
    Option,
    Refusal,
    acts,
    is_set,
    other_than,
    refused,
    without_effect,
)
from storage.options.values import BOOLEAN, DURATION, INT, TEXT, one_of

_OF_METASTORE: Final = "a directory keeps no partitions for tags"
_MARK_DONE: Final = "it belongs to ways of marking partitions as done that writing refuses"
_STATISTICS: Final = "it only reports the size of partitions to a metastore"

MAINTENANCE_OPTIONS: Final[tuple[Option, ...]] = (
    acts("partition.expiration-time", DURATION, None, FILE_WRITING_OPERATIONS),
    acts("partition.expiration-strategy", one_of("values-time", "update-time"), "values-time", FILE_WRITING_OPERATIONS),
    acts("partition.expiration-check-interval", DURATION, "1 h", FILE_WRITING_OPERATIONS),
    acts("partition.expiration-max-num", INT, "100", FILE_WRITING_OPERATIONS),
    acts("partition.expiration-batch-size", INT, None, FILE_WRITING_OPERATIONS),
    acts("partition.timestamp-formatter", TEXT, None, FILE_WRITING_OPERATIONS),
    acts("partition.timestamp-pattern", TEXT, None, FILE_WRITING_OPERATIONS),
    acts("partition.timestamp-format.strict", BOOLEAN, "false", WRITE),
    acts("end-input.check-partition-expire", BOOLEAN, "false", WRITE),
    acts("tag.automatic-creation", one_of("none", "process-time", "watermark", "batch"), "none", WRITE),
    acts("tag.create-success-file", BOOLEAN, "false", WRITE),
    acts("tag.creation-period", one_of("daily", "hourly", "two-hours"), "daily", WRITE | READING),
    acts("tag.creation-delay", DURATION, "0 ms", WRITE),
    acts(
        "tag.period-formatter",
        one_of("with_dashes", "without_dashes", "without_dashes_and_spaces"),
        "with_dashes",
        WRITE | READING,
    ),
    acts("tag.creation-period-duration", DURATION, None, WRITE | READING),
    acts("tag.num-retained-max", INT, None, WRITE),
    acts("tag.default-time-retained", DURATION, None, WRITE),
    acts("tag.time-expire-enabled", BOOLEAN, "true", EXPIRE),
    acts("tag.automatic-completion", BOOLEAN, "false", WRITE),
    acts("tag.batch.customized-name", TEXT, None, WRITE),
    refused(
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
    acts("sink.watermark-time-zone", TEXT, "UTC", WRITE),
    acts("sink.process-time-zone", TEXT, None, WRITE),
    without_effect("metastore.tag-to-partition", TEXT, None, _OF_METASTORE),
    acts("partition.end-input-to-done", BOOLEAN, "false", WRITE),
    refused(
        "partition.idle-time-to-done",
        DURATION,
        None,
        Refusal(WRITE, is_set("1 h"), "partitions would not be marked as done", "Unset it, or write with Java Paimon"),
    ),
    refused(
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
    acts("metastore.partitioned-table", BOOLEAN, "false", WRITE),
    refused(
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
    refused(
        "query-auth.enabled",
        BOOLEAN,
        "false",
        Refusal(READING, IS_TRUE, "rows and columns may be hidden from you", USE_JAVA),
    ),
)
