"""What a table's options say, typed and derived from each other.

A key, its type and its default stand in `storage.options.registry`. Here stands the name under which code asks for it
(`OptionValue`), and what derives from several options (properties and methods). No other module knows a key.

Source: Java `CoreOptions.java`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from storage.options.maintenance_options import MaintenanceOptions
from storage.options.option_value import EnumValue, OptionValue
from storage.options.retention_options import RetentionOptions
from storage.options.scan_options import ScanOptions
from storage.options.values import parse_duration_ms, parse_int, parse_names

MEBIBYTE: Final = 1 << 20
INT_MAX: Final = 2**31 - 1  # where Java's derived numbers stop growing


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


class TableOptions(RetentionOptions, MaintenanceOptions, ScanOptions):
    """All options this release acts on."""

    # ------------------------------------------------------------ merge

    merge_engine = EnumValue("merge-engine", MergeEngine)
    changelog_producer = EnumValue("changelog-producer", ChangelogProducer)
    # Changelogs that compaction makes leave out updates that changed nothing
    changelog_row_deduplicate = OptionValue[bool]("changelog-producer.row-deduplicate")
    # Columns that don't count then
    changelog_row_deduplicate_ignore_fields = OptionValue[tuple[str, ...]](
        "changelog-producer.row-deduplicate-ignore-fields", parse_names, unset=()
    )
    # Columns that order the rows of a key before arrival order does; empty when none are set
    sequence_fields = OptionValue[tuple[str, ...]]("sequence.field")

    @property
    def sequence_descending(self) -> bool:
        return self._word("sequence.field.sort-order") == "descending"

    row_kind_field = OptionValue[str | None]("rowkind.field")
    ignore_delete = OptionValue[bool]("ignore-delete")
    ignore_update_before = OptionValue[bool]("ignore-update-before")

    # ------------------------------------------------------------ compaction

    write_only = OptionValue[bool]("write-only")
    # merge-engine = aggregation: a -D removes the record, instead of taking its values back
    aggregation_removes_on_delete = OptionValue[bool]("aggregation.remove-record-on-delete")

    @property
    def num_levels(self) -> int:
        """Levels of the tree, level 0 included (Java: compaction trigger + 1 unless set)."""
        return self._int("num-levels", min(self.compaction_trigger + 1, INT_MAX))

    # Sorted runs of a bucket from which on compaction is considered
    compaction_trigger = OptionValue[int]("num-sorted-run.compaction-trigger")

    @property
    def stop_trigger(self) -> int:
        """Sorted runs of a bucket above which a flush waits for its compaction."""
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
        """Smaller files are rewritten together with their neighbours, larger ones may stay as they are."""
        ratio = self._fraction("compaction.small-file-ratio")
        return int(self.target_file_size_bytes(has_primary_key=has_primary_key) * ratio)

    # Append tables: how many small files are worth a rewrite
    compaction_min_file_num = OptionValue[int]("compaction.min.file-num")
    # Append tables: how many files are looked at together
    compaction_file_num_limit = OptionValue[int]("compaction.file-num-limit")
    # Sort compaction: how finely values are sampled
    sort_sample_magnification = OptionValue[int]("sort-compaction.local-sample.magnification")
    commit_force_compact = OptionValue[bool]("commit.force-compact")

    @property
    def full_compaction_delta_commits(self) -> int | None:
        """Every how many commits all buckets written since are compacted in full; at least 1. Where that makes the
        changelog and nothing is said, at every commit.
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
        """Whether rows of level 0 are visible (or in a changelog) only once they were compacted."""
        return (
            self.merge_engine is MergeEngine.FIRST_ROW
            or self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.is_on("force-lookup")
        )

    # Keys of a dynamic bucket that make it full
    dynamic_bucket_target_rows = OptionValue[int]("dynamic-bucket.target-row-num")
    # How many assigners each partition's keys are spread over, each with buckets of its own
    dynamic_bucket_initial = OptionValue[int | None]("dynamic-bucket.initial-buckets")
    dynamic_bucket_assigner_parallelism = OptionValue[int | None]("dynamic-bucket.assigner-parallelism")
    # Buckets of a partition; -1: as many as there are ids
    dynamic_bucket_max = OptionValue[int]("dynamic-bucket.max-buckets")
    # Keys that move between partitions: for how long one is remembered, and how much is read at once to know them
    cross_partition_index_ttl_ms = OptionValue[int | None]("cross-partition-upsert.index-ttl")
    cross_partition_bootstrap = OptionValue[int]("cross-partition-upsert.bootstrap-parallelism")

    # Whether each row of an append table has an id that stays
    row_tracking_enabled = OptionValue[bool]("row-tracking.enabled")
    # Whether columns of a row may be in several files, found by its id
    data_evolution_enabled = OptionValue[bool]("data-evolution.enabled")

    deletion_vectors_enabled = OptionValue[bool]("deletion-vectors.enabled")
    # Readers of a table with deletion vectors see level 0, too, and merge it
    deletion_vectors_merge_on_read = OptionValue[bool]("deletion-vectors.merge-on-read")
    # Whether vectors are written in the form that takes positions of 64 bits; both forms are read
    deletion_vectors_bitmap64 = OptionValue[bool]("deletion-vectors.bitmap64")
    # How large index files of vectors get, of tables without buckets
    deletion_vector_index_file_target_bytes = OptionValue[int]("deletion-vector.index-file.target-size")
    # Files of append tables of whose rows a larger share is deleted are rewritten
    compaction_delete_ratio = OptionValue[float]("compaction.delete-ratio-threshold")
    # Whether files of a primary-key table are sorted by other columns than the key
    pk_clustering_override = OptionValue[bool]("pk-clustering-override")
    lookup_wait = OptionValue[bool]("lookup-wait")
    lookup_compact = EnumValue("lookup-compact", LookupCompact)

    @property
    def lookup_compact_max_interval(self) -> int:
        """With gentle lookup compaction: after how many picks of nothing level 0 must go up."""
        trigger = self.compaction_trigger
        return max(trigger, self._int("lookup-compact.max-interval", min(trigger * 2, INT_MAX)))

    lookup_cache_max_disk_bytes = OptionValue[int]("lookup.cache-max-disk-size")
    lookup_cache_max_memory_bytes = OptionValue[int]("lookup.cache-max-memory-size")
    # For how long a file is kept ready after the last lookup in it
    lookup_cache_file_retention_ms = OptionValue[int]("lookup.cache-file-retention")

    @property
    def lookup_cache_bloom_filter_fpp(self) -> float | None:
        """Share of absent keys that are taken for present ones; None: no Bloom filter."""
        return (
            self._fraction("lookup.cache.bloom.filter.fpp") if self.is_on("lookup.cache.bloom.filter.enabled") else None
        )

    # How many runs a merge has open at most. Java's default is for the sake of its heap: stop trigger + 1
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

    # What `file.suffix.include.compression` puts into names: the table's codec, whatever the level's is (as Java)
    file_suffix_compression = OptionValue[str]("file.compression")
    file_suffix_include_compression = OptionValue[bool]("file.suffix.include.compression")

    def changelog_file_format(self, level: int = 0) -> str:
        return self._word("changelog-file.format") or self.file_format(level)

    def changelog_file_compression(self, level: int = 0) -> str:
        return self._trimmed("changelog-file.compression") or self.file_compression(level)

    zstd_level = OptionValue[int]("file.compression.zstd-level")
    # Parquet row group or ORC stripe size; None leaves the format's default
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
        """Of a file of blobs; as a data file's, unless said otherwise."""
        return self._size_bytes("blob.target-file-size", self.target_file_size_bytes(has_primary_key=False))

    target_file_row_num = OptionValue[int]("target-file-row-num")

    # Containers of file indexes up to this size are in the manifest, larger ones in files of their own. Which columns
    # have indexes: `storage.file_index.settings`
    file_index_in_manifest_threshold_bytes = OptionValue[int]("file-index.in-manifest-threshold")
    file_index_read_enabled = OptionValue[bool]("file-index.read.enabled")

    def format_options(self, format_name: str) -> dict[str, str]:
        """Options meant for the format's library, with their prefix: `parquet.enable.dictionary`, …"""
        return {key: value for key, value in self.items() if key.startswith(format_name + ".")}

    # ------------------------------------------------------------ statistics

    def stats_mode(self, column: str, level: int, *, changelog: bool = False) -> str:
        """Mode text for one of the table's own columns: none, counts, full or truncate(n)."""
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

    # Of manifests and manifest lists: all of a table are of one format, for Java reads them by this option
    manifest_format = OptionValue[str]("manifest.format")
    manifest_compression = OptionValue[str]("manifest.compression")
    manifest_target_file_size_bytes = OptionValue[int]("manifest.target-file-size")
    manifest_full_compaction_size_bytes = OptionValue[int]("manifest.full-compaction-threshold-size")
    manifest_merge_min_count = OptionValue[int]("manifest.merge-min-count")
    manifest_delete_file_drop_stats = OptionValue[bool]("manifest.delete-file-drop-stats")
    postpone_default_bucket_num = OptionValue[int | None]("postpone.default-bucket-num")
    postpone_target_rows = OptionValue[int | None]("postpone.target-row-num-per-bucket")
    postpone_target_bytes = OptionValue[int]("postpone.target-size-per-bucket")
    postpone_batches_get_buckets = OptionValue[bool]("postpone.batch-write-fixed-bucket")
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
