"""Options of writing, commits, manifests and the expiry of snapshots."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    EXPIRE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    PERFORMANCE_ONLY,
    WRITE,
    Option,
    Refusal,
    is_set,
    other_than,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, DURATION, INT, LONG, SIZE, TEXT, WORD, one_of

_CALLBACK: Final = "it belongs to a callback, which writing refuses"
_VISIBILITY: Final = "it belongs to visibility-callback.enabled, which writing refuses"

COMMITS_OPTIONS: Final[tuple[Option, ...]] = (
    supported("write-buffer-size", SIZE, "256 mb", WRITE),
    supported("write-buffer-spillable", BOOLEAN, "true", WRITE),
    supported("overwrite-upgrade", BOOLEAN, "true", WRITE),
    supported("dynamic-partition-overwrite", BOOLEAN, "true", WRITE),
    without_effect("write-buffer-spill.max-disk-size", SIZE, "9223372036854775807 b", PERFORMANCE_ONLY),
    without_effect("write-buffer-for-append", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("write-max-writers-to-spill", INT, "10", PERFORMANCE_ONLY),
    unsupported(
        "write.sequence-number-init-mode",
        one_of("scan", "snapshot"),
        "scan",
        Refusal(
            WRITE,
            other_than("scan", example="snapshot"),
            "sequence numbers start from the files of a bucket",
            "Unset it",
        ),
    ),
    supported("commit.timeout", DURATION, None, FILE_WRITING_OPERATIONS),
    supported("commit.max-retries", INT, "10", FILE_WRITING_OPERATIONS),
    supported("commit.min-retry-wait", DURATION, "10 ms", FILE_WRITING_OPERATIONS),
    supported("commit.max-retry-wait", DURATION, "10 s", FILE_WRITING_OPERATIONS),
    supported("commit.user-prefix", TEXT, None, FILE_WRITING_OPERATIONS),
    supported("commit.discard-duplicate-files", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("commit.force-create-snapshot", BOOLEAN, "false", WRITE),
    supported("snapshot.ignore-empty-commit", BOOLEAN, None, WRITE, unset="true"),
    unsupported(
        "commit.strict-mode.last-safe-snapshot",
        LONG,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("1"), "this check is not supported", "Unset it"),
    ),
    unsupported(
        "commit.callbacks",
        TEXT,
        "",
        Refusal(FILE_WRITING_OPERATIONS, is_set("org.example.Callback"), "Java classes can't be called", "Unset it"),
    ),
    unsupported(
        "tag.callbacks",
        TEXT,
        "",
        Refusal(WRITE, is_set("org.example.Callback"), "Java classes can't be called", "Unset it"),
    ),
    without_effect("commit.callback.<class>.param", TEXT, None, _CALLBACK),
    without_effect("tag.callback.<class>.param", TEXT, None, _CALLBACK),
    unsupported(
        "visibility-callback.enabled",
        BOOLEAN,
        "false",
        Refusal(WRITE, IS_TRUE, "commits don't wait until their rows are visible", "Unset it"),
    ),
    without_effect("visibility-callback.timeout", DURATION, "30 min", _VISIBILITY),
    without_effect("visibility-callback.check-interval", DURATION, "10 s", _VISIBILITY),
    supported(
        "manifest.format",
        WORD,
        "avro",
        FILE_WRITING_OPERATIONS,
        Refusal(
            FILE_WRITING_OPERATIONS,
            other_than("avro", "parquet", "orc", example="json"),
            "manifests can be written as avro, parquet or orc",
            "Choose one of them",
        ),
    ),
    supported("manifest.compression", WORD, "zstd", FILE_WRITING_OPERATIONS),
    supported("manifest.target-file-size", SIZE, "8 mb", FILE_WRITING_OPERATIONS),
    supported("manifest.full-compaction-threshold-size", SIZE, "16 mb", FILE_WRITING_OPERATIONS),
    supported("manifest.merge-min-count", INT, "30", FILE_WRITING_OPERATIONS),
    supported("manifest.delete-file-drop-stats", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    without_effect("manifest-sort.enabled", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("manifest-sort.partition-field", TEXT, None, PERFORMANCE_ONLY),
    without_effect("manifest-sort.max-rewrite-size", SIZE, "256 mb", PERFORMANCE_ONLY),
    without_effect("manifest.merge-optimize.enabled", BOOLEAN, None, PERFORMANCE_ONLY, release="after 2.0.0"),
    supported("snapshot.num-retained.min", INT, "10", EXPIRE),
    supported("snapshot.num-retained.max", INT, "2147483647", EXPIRE),
    supported("snapshot.time-retained", DURATION, "1 h", EXPIRE),
    supported("snapshot.expire.limit", INT, "50", EXPIRE),
    supported("changelog.num-retained.min", INT, None, EXPIRE),
    supported("changelog.num-retained.max", INT, None, EXPIRE),
    supported("changelog.time-retained", DURATION, None, EXPIRE),
    supported("consumer.expiration-time", DURATION, None, EXPIRE),
    supported("consumer.changelog-only", BOOLEAN, "false", EXPIRE),
    without_effect("snapshot.expire.execution-mode", one_of("sync", "async"), "sync", PERFORMANCE_ONLY),
    without_effect("file-operation.thread-num", INT, None, PERFORMANCE_ONLY, fallbacks=("delete-file.thread-num",)),
    supported(
        "snapshot.clean-empty-directories",
        BOOLEAN,
        "false",
        EXPIRE,
        fallbacks=("snapshot.expire.clean-empty-directories",),
    ),
    without_effect("commit.native.*", TEXT, None, PERFORMANCE_ONLY, release="pypaimon"),
    without_effect("write.native.*", TEXT, None, PERFORMANCE_ONLY, release="pypaimon"),
)
