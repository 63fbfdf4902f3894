"""Options of indexes, deletion vectors, row tracking and data evolution."""

from __future__ import annotations

from typing import Final

from tidelake.storage.model.options.option import (
    COMPACT,
    CREATE,
    FILE_WRITING_OPERATIONS,
    IS_TRUE,
    READ,
    ROW_OPERATIONS,
    USE_JAVA,
    Option,
    Refusal,
    deciding_rows,
    is_set,
    supported,
    unsupported,
    without_effect,
)
from tidelake.storage.model.options.values import BOOLEAN, COLUMNS, FRACTION, INT, LONG, SIZE, TEXT, one_of

_GLOBAL: Final = "it belongs to global indexes, which only make reading faster"
_TRACKING: Final = "readers can't see in which order new files get their row ids"
_EVOLUTION: Final = "it belongs to jobs of Flink and Spark"

INDEXES_OPTIONS: Final[tuple[Option, ...]] = (
    supported("file-index.<type>.columns", COLUMNS, None, FILE_WRITING_OPERATIONS),
    supported("file-index.*", TEXT, None, FILE_WRITING_OPERATIONS),
    supported("file-index.in-manifest-threshold", SIZE, "500 b", FILE_WRITING_OPERATIONS),
    supported("file-index.read.enabled", BOOLEAN, "true", READ),
    unsupported(
        "pk-vector.index.columns",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("id"), "new files would lack the index", "Unset it"),
    ),
    unsupported(
        "pk-btree.index.columns",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("id"), "new files would lack the index", "Unset it"),
    ),
    unsupported(
        "pk-bitmap.index.columns",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("id"), "new files would lack the index", "Unset it"),
    ),
    unsupported(
        "pk-full-text.index.columns",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("id"), "new files would lack the index", "Unset it"),
    ),
    unsupported(
        "pk-multivalue.index.columns",
        TEXT,
        None,
        Refusal(FILE_WRITING_OPERATIONS, is_set("id"), "new files would lack the index", "Unset it"),
        release="after 2.0.0",
    ),
    without_effect(
        "global-index.column-update-action",
        one_of("throw_error", "drop_partition_index", "ignore"),
        "throw_error",
        _GLOBAL,
    ),
    without_effect("global-index.external-path", TEXT, None, _GLOBAL),
    without_effect("global-index.row-count-per-shard", LONG, "100000", _GLOBAL),
    without_effect("global-index.build.max-shard", INT, "32", _GLOBAL),
    without_effect("global-index.build.max-parallelism", INT, "4096", _GLOBAL),
    without_effect("global-index.enabled", BOOLEAN, "true", _GLOBAL),
    without_effect("global-index.search-mode", one_of("fast", "full", "detail"), None, _GLOBAL),
    without_effect("global-index.thread-num", INT, "32", _GLOBAL),
    without_effect("scalar-index.search-mode", one_of("fast", "full", "detail"), "fast", _GLOBAL),
    without_effect("vector-index.search-mode", one_of("fast", "full", "detail"), "fast", _GLOBAL),
    without_effect("full-text-index.search-mode", one_of("fast", "full", "detail"), "fast", _GLOBAL),
    without_effect("vector-search.distribute.enabled", BOOLEAN, "false", _GLOBAL),
    without_effect("vector-search.lateral-join.batch-size", INT, "256", _GLOBAL),
    without_effect("bitmap-index.dictionary-block-size", SIZE, "16 kb", _GLOBAL),
    without_effect("bitmap-index.compression", TEXT, "none", _GLOBAL),
    without_effect("bitmap-index.compression-level", INT, "1", _GLOBAL),
    without_effect("bitmap-index.fallback-scan-max-size", SIZE, "256 mb", _GLOBAL),
    without_effect("btree-index.compression", TEXT, "none", _GLOBAL),
    without_effect("btree-index.compression-level", INT, "1", _GLOBAL),
    without_effect("btree-index.block-size", SIZE, "64 kb", _GLOBAL),
    without_effect("btree-index.cache-size", SIZE, "128 mb", _GLOBAL),
    without_effect("btree-index.high-priority-pool-ratio", FRACTION, "0.1", _GLOBAL),
    without_effect("btree-index.fallback-scan-max-size", SIZE, "256 mb", _GLOBAL),
    without_effect("btree-index.records-per-range", LONG, "10000000", _GLOBAL),
    without_effect("btree-index.build.max-parallelism", INT, "4096", _GLOBAL),
    without_effect(
        "sorted-index.records-per-range", LONG, "10000000", _GLOBAL, fallbacks=("btree-index.records-per-range",)
    ),
    without_effect(
        "sorted-index.build.max-parallelism", INT, "4096", _GLOBAL, fallbacks=("btree-index.build.max-parallelism",)
    ),
    deciding_rows(
        supported(
            "deletion-vectors.enabled",
            BOOLEAN,
            "false",
            READ | FILE_WRITING_OPERATIONS,
        )
    ),
    supported("deletion-vectors.modifiable", BOOLEAN, "false", CREATE),
    supported("deletion-vector.index-file.target-size", SIZE, "2 mb", FILE_WRITING_OPERATIONS),
    supported("deletion-vectors.merge-on-read", BOOLEAN, "false", READ),
    supported("deletion-vectors.bitmap64", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("compaction.delete-ratio-threshold", FRACTION, "0.2", COMPACT),
    supported(
        "row-tracking.enabled",
        BOOLEAN,
        "false",
        ROW_OPERATIONS,
        immutable=True,
    ),
    supported(
        "data-evolution.enabled",
        BOOLEAN,
        "false",
        ROW_OPERATIONS,
        Refusal(COMPACT, IS_TRUE, "columns of a row are in several files", USE_JAVA),
        immutable=True,
    ),
    without_effect("row-tracking.partition-group-on-commit", BOOLEAN, "true", _TRACKING),
    without_effect("data-evolution.reassign.skip-contiguous-row-count", LONG, "1000000000", _EVOLUTION),
    without_effect("data-evolution.row-id-conflict-rewrite.max-size", SIZE, "256 mb", _EVOLUTION),
    without_effect("data-evolution.row-sidecar.enabled", BOOLEAN, "false", _EVOLUTION),
    without_effect("data-evolution.row-sidecar.max-selected-rows", LONG, "4096", _EVOLUTION),
    without_effect("data-evolution.row-sidecar.max-selection-ratio", FRACTION, "0.05", _EVOLUTION),
    without_effect("data-evolution.merge-into.file-pruning", BOOLEAN, "true", _EVOLUTION),
    without_effect("data-evolution.merge-into.source-persist", BOOLEAN, "false", _EVOLUTION),
    without_effect("data-evolution.compaction.rewrite-row-ids", BOOLEAN, "false", _EVOLUTION),
)
