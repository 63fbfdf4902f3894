"""The typed values of a table's options, including derived ones.

`tidelake.storage.model.options.registry` has the key, type and default of each option. This module has the names that
code uses (`OptionValue`), and values derived from several options (properties and methods). No other module knows a
key.

Source: Java `CoreOptions.java`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from tidelake.storage.model.options.iceberg_options import ICEBERG_FORMAT_VERSION_3, IcebergOptions
from tidelake.storage.model.options.maintenance_options import MaintenanceOptions
from tidelake.storage.model.options.option_value import EnumValue, OptionValue
from tidelake.storage.model.options.retention_options import RetentionOptions
from tidelake.storage.model.options.scan_options import ScanOptions
from tidelake.storage.model.options.values import parse_duration_ms, parse_int, parse_names

MEBIBYTE: Final = 1 << 20
INT_MAX: Final = 2**31 - 1  # the limit of Java's derived numbers


class MergeEngine(StrEnum):
    DEDUPLICATE = "deduplicate"
    PARTIAL_UPDATE = "partial-update"
    AGGREGATION = "aggregation"
    FIRST_ROW = "first-row"


class ChangelogProducer(StrEnum):
    NONE = "none"
    INPUT = "input"
    LOOKUP = "lookup"
    FULL_COMPACTION = "full-compaction"


class LookupCompact(StrEnum):
    RADICAL = "radical"
    GENTLE = "gentle"


class TableOptions(RetentionOptions, MaintenanceOptions, ScanOptions, IcebergOptions):
    """All options that this release acts on."""

    # ------------------------------------------------------------ merge

    merge_engine = EnumValue("merge-engine", MergeEngine)
    changelog_producer = EnumValue("changelog-producer", ChangelogProducer)
    # Changelogs made by compaction leave out updates that changed nothing
    changelog_row_deduplicate = OptionValue[bool]("changelog-producer.row-deduplicate")
    # Columns that such a comparison ignores
    changelog_row_deduplicate_ignore_fields = OptionValue[tuple[str, ...]](
        "changelog-producer.row-deduplicate-ignore-fields", parse_names, unset=()
    )
    # Columns that order the rows of a key, before the order of arrival; empty if not set
    sequence_fields = OptionValue[tuple[str, ...]]("sequence.field")

    @property
    def sequence_descending(self) -> bool:
        return self._word("sequence.field.sort-order") == "descending"

    # Whether columns of the primary key may be null. All nulls are one value, the smallest
    has_nullable_keys = OptionValue[bool]("primary-key.nullable")
    row_kind_field = OptionValue[str | None]("rowkind.field")
    ignore_delete = OptionValue[bool]("ignore-delete")
    ignore_update_before = OptionValue[bool]("ignore-update-before")

    # ------------------------------------------------------------ compaction

    write_only = OptionValue[bool]("write-only")
    # merge-engine = aggregation: a -D removes the record instead of retracting its values
    aggregation_removes_on_delete = OptionValue[bool]("aggregation.remove-record-on-delete")

    @property
    def num_levels(self) -> int:
        """Number of levels, including level 0 (Java: compaction trigger + 1 unless set)."""
        return self._int("num-levels", min(self.compaction_trigger + 1, INT_MAX))

    # From this number of sorted runs on, compaction of a bucket is considered
    compaction_trigger = OptionValue[int]("num-sorted-run.compaction-trigger")

    @property
    def stop_trigger(self) -> int:
        """Number of sorted runs above which a flush waits for the bucket's compaction."""
        trigger = self.compaction_trigger
        return max(trigger, self._int("num-sorted-run.stop-trigger", min(trigger + 3, INT_MAX)))

    max_size_amplification_percent = OptionValue[int]("compaction.max-size-amplification-percent")
    size_ratio_percent = OptionValue[int]("compaction.size-ratio")
    offpeak_start_hour = OptionValue[int]("compaction.offpeak.start.hour")
    offpeak_end_hour = OptionValue[int]("compaction.offpeak.end.hour")
    offpeak_ratio_percent = OptionValue[int]("compaction.offpeak-ratio")
    optimization_interval_ms = OptionValue[int | None]("compaction.optimization-interval")
    compaction_total_size_threshold_bytes = OptionValue[int | None]("compaction.total-size-threshold")
    compaction_incremental_size_threshold_bytes = OptionValue[int | None]("compaction.incremental-size-threshold")
    force_up_level_0 = OptionValue[bool]("compaction.force-up-level-0")
    force_rewrite_all_files = OptionValue[bool]("compaction.force-rewrite-all-files")

    def compaction_file_size_bytes(self, *, has_primary_key: bool) -> int:
        """Files below this size are rewritten together with their neighbours; larger ones may stay as they are."""
        ratio = self._fraction("compaction.small-file-ratio")
        return int(self.target_file_size_bytes(has_primary_key=has_primary_key) * ratio)

    # Append tables: from this number of small files on, a rewrite is worthwhile
    compaction_min_file_num = OptionValue[int]("compaction.min.file-num")
    # Append tables: number of files that one plan considers
    compaction_file_num_limit = OptionValue[int]("compaction.file-num-limit")
    # Sort compaction: how many values are sampled
    sort_sample_magnification = OptionValue[int]("sort-compaction.local-sample.magnification")
    commit_force_compact = OptionValue[bool]("commit.force-compact")

    @property
    def full_compaction_delta_commits(self) -> int | None:
        """The number of commits after which all written buckets are compacted in full; at least 1. If full compaction
        makes the changelog and the option is not set: 1.
        """
        commits = self._optional("full-compaction.delta-commits", parse_int)
        if commits is None:
            return 1 if self.changelog_producer is ChangelogProducer.FULL_COMPACTION else None
        return max(commits, 1)

    partial_update_removes_on_delete = OptionValue[bool]("partial-update.remove-record-on-delete")
    # Sequence fields whose deletes remove the record (`partial-update.remove-record-on-sequence-group`)
    partial_update_removes_on_sequences = OptionValue[tuple[str, ...]]("partial-update.remove-record-on-sequence-group")

    @property
    def needs_lookup(self) -> bool:
        """Whether rows of level 0 are visible (or in a changelog) only after they were compacted."""
        return (
            self.merge_engine is MergeEngine.FIRST_ROW
            or self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.is_on("force-lookup")
        )

    # Number of keys at which a dynamic bucket is full
    dynamic_bucket_target_rows = OptionValue[int]("dynamic-bucket.target-row-num")
    # Number of assigners that share each partition's keys; each has its own buckets
    dynamic_bucket_initial = OptionValue[int | None]("dynamic-bucket.initial-buckets")
    dynamic_bucket_assigner_parallelism = OptionValue[int | None]("dynamic-bucket.assigner-parallelism")
    # Limit of buckets in a partition; -1: limited only by the range of bucket ids
    dynamic_bucket_max = OptionValue[int]("dynamic-bucket.max-buckets")
    # For keys that move between partitions: how long a key is remembered, and how many sections are read in parallel
    cross_partition_index_ttl_ms = OptionValue[int | None]("cross-partition-upsert.index-ttl")
    cross_partition_bootstrap = OptionValue[int]("cross-partition-upsert.bootstrap-parallelism")

    # Whether each row of an append table has a permanent id
    row_tracking_enabled = OptionValue[bool]("row-tracking.enabled")
    # Whether columns of a row may be in several files, joined by its row id
    data_evolution_enabled = OptionValue[bool]("data-evolution.enabled")

    deletion_vectors_enabled = OptionValue[bool]("deletion-vectors.enabled")
    # With deletion vectors: whether readers read and merge level 0, too
    deletion_vectors_merge_on_read = OptionValue[bool]("deletion-vectors.merge-on-read")
    # Whether vectors are written in the format for 64-bit positions; both formats are read
    deletion_vectors_bitmap64 = OptionValue[bool]("deletion-vectors.bitmap64")

    @property
    def iceberg_has_deletion_vectors(self) -> bool:
        """Whether Iceberg readers see deletion vectors: those of Iceberg's form, since format version 3."""
        return (
            self.deletion_vectors_enabled
            and self.deletion_vectors_bitmap64
            and self.iceberg_format_version >= ICEBERG_FORMAT_VERSION_3
        )

    # Target size of index files with vectors, for tables without buckets
    deletion_vector_index_file_target_bytes = OptionValue[int]("deletion-vector.index-file.target-size")
    # Files of append tables are rewritten if a larger share of their rows is deleted
    compaction_delete_ratio = OptionValue[float]("compaction.delete-ratio-threshold")
    # Whether files of a primary-key table are sorted by other columns than the key
    pk_clustering_override = OptionValue[bool]("pk-clustering-override")
    lookup_wait = OptionValue[bool]("lookup-wait")
    lookup_compact = EnumValue("lookup-compact", LookupCompact)

    @property
    def lookup_compact_max_interval(self) -> int:
        """For gentle lookup compaction: the number of picks without a result after which level 0 must be compacted."""
        trigger = self.compaction_trigger
        return max(trigger, self._int("lookup-compact.max-interval", min(trigger * 2, INT_MAX)))

    lookup_cache_max_disk_bytes = OptionValue[int]("lookup.cache-max-disk-size")
    lookup_cache_max_memory_bytes = OptionValue[int]("lookup.cache-max-memory-size")
    # How long a lookup file is kept after the last lookup in it
    lookup_cache_file_retention_ms = OptionValue[int]("lookup.cache-file-retention")

    @property
    def lookup_cache_bloom_filter_fpp(self) -> float | None:
        """Share of absent keys that the filter reports as present; None: no Bloom filter."""
        return (
            self._fraction("lookup.cache.bloom.filter.fpp") if self.is_on("lookup.cache.bloom.filter.enabled") else None
        )

    # Limit of runs that a merge opens. Java's default (stop trigger + 1) protects its heap
    sort_spill_threshold = OptionValue[int | None]("sort-spill-threshold")

    @property
    def record_level_expire_time_s(self) -> int | None:
        expire_ms = self._optional("record-level.expire-time", parse_duration_ms)
        return None if expire_ms is None else expire_ms // 1000

    record_level_time_field = OptionValue[str | None]("record-level.time-field")

    # ------------------------------------------------------------ data files

    def file_format(self, level: int = 0) -> str:
        per_level = self._map("file.format.per.level")
        return per_level.get(str(level), self._word("file.format")).strip().lower()

    def file_compression(self, level: int = 0) -> str:
        per_level = self._map("file.compression.per.level")
        return per_level.get(str(level), self._trimmed("file.compression"))

    # The codec that `file.suffix.include.compression` adds to names: the table's, even if a level has another (as Java)
    file_suffix_compression = OptionValue[str]("file.compression")
    file_suffix_include_compression = OptionValue[bool]("file.suffix.include.compression")

    def changelog_file_format(self, level: int = 0) -> str:
        return self._word("changelog-file.format") or self.file_format(level)

    def changelog_file_compression(self, level: int = 0) -> str:
        return self._trimmed("changelog-file.compression") or self.file_compression(level)

    zstd_level = OptionValue[int]("file.compression.zstd-level")
    # Size of a Parquet row group or ORC stripe; None: the format's default
    file_block_size_bytes = OptionValue[int | None]("file.block-size")
    data_file_prefix = OptionValue[str]("data-file.prefix")
    changelog_file_prefix = OptionValue[str]("changelog-file.prefix")
    data_file_path_directory = OptionValue[str | None]("data-file.path-directory")
    # Whether primary-key files leave out the `_KEY_` columns
    thin_mode = OptionValue[bool]("data-file.thin-mode")

    def target_file_size_bytes(self, *, has_primary_key: bool) -> int:
        default = 128 * MEBIBYTE if has_primary_key else 256 * MEBIBYTE
        return self._size_bytes("target-file-size", default)

    @property
    def blob_target_file_size_bytes(self) -> int:
        """Target size of a blob file; that of data files if not set."""
        return self._size_bytes("blob.target-file-size", self.target_file_size_bytes(has_primary_key=False))

    target_file_row_num = OptionValue[int]("target-file-row-num")

    # Containers of file indexes up to this size are in the manifest, larger ones in separate files.
    # `tidelake.storage.files.file_index.index_settings` says which columns have indexes
    file_index_in_manifest_threshold_bytes = OptionValue[int]("file-index.in-manifest-threshold")
    file_index_read_enabled = OptionValue[bool]("file-index.read.enabled")

    def format_options(self, format_name: str) -> dict[str, str]:
        """Return the options for the format's library, with their prefix: `parquet.enable.dictionary`, …"""
        return {key: value for key, value in self.items() if key.startswith(format_name + ".")}

    # ------------------------------------------------------------ statistics

    def stats_mode(self, column: str, level: int, *, changelog: bool = False) -> str:
        """Return the statistics mode of one of the table's own columns: none, counts, full or truncate(n)."""
        if (own := self.get(f"fields.{column}.stats-mode")) is not None:
            return own.strip().lower()
        if changelog and (mode := self.get("changelog-file.stats-mode")) is not None:
            return mode.strip().lower()
        per_level = self._map("metadata.stats-mode.per.level")
        return per_level.get(str(level), self._word("metadata.stats-mode")).strip().lower()

    stats_dense_store = OptionValue[bool]("metadata.stats-dense-store")
    stats_keep_first_n_columns = OptionValue[int]("metadata.stats-keep-first-n-columns")

    # ------------------------------------------------------------ partitions, buckets

    partition_default_name = OptionValue[str]("partition.default-name")
    partition_legacy_name = OptionValue[bool]("partition.legacy-name")
    dynamic_partition_overwrite = OptionValue[bool]("dynamic-partition-overwrite")
    overwrite_upgrade = OptionValue[bool]("overwrite-upgrade")

    # ------------------------------------------------------------ write memory

    write_buffer_size_bytes = OptionValue[int]("write-buffer-size")
    write_buffer_spillable = OptionValue[bool]("write-buffer-spillable")

    # ------------------------------------------------------------ reading

    split_target_size_bytes = OptionValue[int]("source.split.target-size")
    split_open_file_cost_bytes = OptionValue[int]("source.split.open-file-cost")

    # ------------------------------------------------------------ manifests, commit

    # Format of manifests and manifest lists. All files of a table have one format: Java reads them by this option
    manifest_format = OptionValue[str]("manifest.format")
    manifest_compression = OptionValue[str]("manifest.compression")
    manifest_target_file_size_bytes = OptionValue[int]("manifest.target-file-size")
    manifest_full_compaction_size_bytes = OptionValue[int]("manifest.full-compaction-threshold-size")
    manifest_merge_min_count = OptionValue[int]("manifest.merge-min-count")
    manifest_delete_file_drop_stats = OptionValue[bool]("manifest.delete-file-drop-stats")
    postpone_default_bucket_num = OptionValue[int | None]("postpone.default-bucket-num")
    postpone_target_rows = OptionValue[int | None]("postpone.target-row-num-per-bucket")
    postpone_target_bytes = OptionValue[int]("postpone.target-size-per-bucket")
    postpone_batch_write_fixed_bucket = OptionValue[bool]("postpone.batch-write-fixed-bucket")
    postpone_bucket_num_max = OptionValue[int]("postpone.batch-write-fixed-bucket.max-parallelism")
    postpone_rescale_load_factor = OptionValue[int]("postpone.batch-write-fixed-bucket.rescale-load-factor")
    commit_max_retries = OptionValue[int]("commit.max-retries")
    commit_timeout_ms = OptionValue[int | None]("commit.timeout")
    commit_min_retry_wait_ms = OptionValue[int]("commit.min-retry-wait")
    commit_max_retry_wait_ms = OptionValue[int]("commit.max-retry-wait")
    commit_user_prefix = OptionValue[str | None]("commit.user-prefix")
    commit_force_create_snapshot = OptionValue[bool]("commit.force-create-snapshot")

    # For batch commits; a numbered commit makes a snapshot even without files
    snapshot_ignore_empty_commit = OptionValue[bool]("snapshot.ignore-empty-commit")

    discard_duplicate_files = OptionValue[bool]("commit.discard-duplicate-files")
    index_file_in_data_file_directory = OptionValue[bool]("index-file-in-data-file-dir")
