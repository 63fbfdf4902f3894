"""Options of compaction, and of merges that don't fit into memory."""

from __future__ import annotations

from typing import Final

from storage.options.definitions.reasons import LAYOUT, PERFORMANCE_ONLY
from storage.options.option import COMPACT, FILE_WRITING_OPERATIONS, WRITE, Option, supported, without_effect
from storage.options.values import BOOLEAN, DURATION, FRACTION, INT, SIZE, TEXT, one_of

COMPACTION_OPTIONS: Final[tuple[Option, ...]] = (
    supported("write-only", BOOLEAN, "false", WRITE | COMPACT, fallbacks=("write.compaction-skip",)),
    supported("num-sorted-run.compaction-trigger", INT, "5", FILE_WRITING_OPERATIONS),
    supported("num-sorted-run.stop-trigger", INT, None, FILE_WRITING_OPERATIONS),
    supported("num-levels", INT, None, FILE_WRITING_OPERATIONS),
    supported("compaction.max-size-amplification-percent", INT, "200", FILE_WRITING_OPERATIONS),
    supported("compaction.size-ratio", INT, "1", FILE_WRITING_OPERATIONS),
    supported("compaction.offpeak.start.hour", INT, "-1", FILE_WRITING_OPERATIONS),
    supported("compaction.offpeak.end.hour", INT, "-1", FILE_WRITING_OPERATIONS),
    supported("compaction.offpeak-ratio", INT, "0", FILE_WRITING_OPERATIONS),
    supported("compaction.optimization-interval", DURATION, None, FILE_WRITING_OPERATIONS),
    supported("compaction.total-size-threshold", SIZE, None, FILE_WRITING_OPERATIONS),
    supported("compaction.incremental-size-threshold", SIZE, None, FILE_WRITING_OPERATIONS),
    supported("compaction.force-up-level-0", BOOLEAN, "false", FILE_WRITING_OPERATIONS),
    supported("compaction.small-file-ratio", FRACTION, "0.7", FILE_WRITING_OPERATIONS),
    supported("full-compaction.delta-commits", INT, None, FILE_WRITING_OPERATIONS),
    supported("lookup-wait", BOOLEAN, "true", FILE_WRITING_OPERATIONS, fallbacks=("changelog-producer.lookup-wait",)),
    supported("lookup-compact", one_of("radical", "gentle"), "radical", FILE_WRITING_OPERATIONS),
    supported("lookup-compact.max-interval", INT, None, FILE_WRITING_OPERATIONS),
    supported("lookup.cache-file-retention", DURATION, "1 h", FILE_WRITING_OPERATIONS),
    supported("lookup.cache-max-disk-size", SIZE, "9223372036854775807 b", FILE_WRITING_OPERATIONS),
    supported("lookup.cache-max-memory-size", SIZE, "256 mb", FILE_WRITING_OPERATIONS),
    supported("lookup.cache.bloom.filter.enabled", BOOLEAN, "true", FILE_WRITING_OPERATIONS),
    supported("lookup.cache.bloom.filter.fpp", FRACTION, "0.05", FILE_WRITING_OPERATIONS),
    supported("sort-spill-threshold", INT, None, FILE_WRITING_OPERATIONS),
    supported("compaction.force-rewrite-all-files", BOOLEAN, "false", COMPACT),
    supported("compaction.min.file-num", INT, "5", COMPACT),
    supported("compaction.file-num-limit", INT, "100000", COMPACT),
    supported("sort-compaction.local-sample.magnification", INT, "1000", COMPACT),
    supported("commit.force-compact", BOOLEAN, "false", WRITE),
    without_effect("sort-compaction.range-strategy", one_of("size", "quantity"), "size", LAYOUT),
    without_effect("zorder.var-length-contribution", INT, "8", LAYOUT),
    without_effect("clustering.strategy", TEXT, "auto", LAYOUT, fallbacks=("sink.clustering.strategy",)),
    without_effect("clustering.incremental", BOOLEAN, "false", LAYOUT),
    without_effect("clustering.history-partition.limit", INT, "5", LAYOUT),
    without_effect("clustering.history-partition.idle-to-full-sort", DURATION, None, LAYOUT),
    without_effect("clustering.incremental.optimize-write", BOOLEAN, "false", LAYOUT),
    without_effect("clustering.incremental.mode", one_of("global-sort", "local-sort"), "global-sort", LAYOUT),
    without_effect("clustering.columns", TEXT, None, LAYOUT, fallbacks=("sink.clustering.by-columns",)),
    supported("compaction.skip-expired-partitions", BOOLEAN, "false", COMPACT),
    without_effect("sort-engine", one_of("min-heap", "loser-tree"), "loser-tree", PERFORMANCE_ONLY),
    without_effect("sort-spill-buffer-size", SIZE, "64 mb", PERFORMANCE_ONLY),
    without_effect("spill-compression", TEXT, "zstd", PERFORMANCE_ONLY),
    without_effect("spill-compression.zstd-level", INT, "1", PERFORMANCE_ONLY),
    without_effect("local-sort.max-num-file-handles", INT, "128", PERFORMANCE_ONLY),
    without_effect("page-size", SIZE, "64 kb", PERFORMANCE_ONLY),
    without_effect("cache-page-size", SIZE, "64 kb", PERFORMANCE_ONLY),
    without_effect("local-kv-db.block-size", SIZE, "4 kb", PERFORMANCE_ONLY),
    without_effect("lookup.cache-spill-compression", TEXT, "zstd", PERFORMANCE_ONLY),
    without_effect("lookup.cache.high-priority-pool-ratio", FRACTION, "0.25", PERFORMANCE_ONLY),
    without_effect("lookup.hash-load-factor", FRACTION, "0.75", PERFORMANCE_ONLY),
    without_effect("lookup.remote-file.enabled", BOOLEAN, "false", PERFORMANCE_ONLY),
    without_effect("lookup.remote-file.level-threshold", INT, "-2147483648", PERFORMANCE_ONLY),
)
