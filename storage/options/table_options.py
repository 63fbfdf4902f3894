"""What a table's options say, typed and derived from each other. Names and defaults: `storage.options.registry`.

A `TableOptions` answers questions ("which format do files of level 3 have?"), so that no other module knows a key.

Source: Java `CoreOptions.java`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from storage.options.retention_options import RetentionOptions
from storage.options.scan_options import ScanOptions
from storage.options.values import parse_boolean, parse_duration_ms, parse_int, parse_size_bytes

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


class TableOptions(RetentionOptions, ScanOptions):
    """All options this release acts on."""

    # ------------------------------------------------------------ merge

    @property
    def merge_engine(self) -> MergeEngine:
        return self._choice("merge-engine", MergeEngine)

    @property
    def changelog_producer(self) -> ChangelogProducer:
        return self._choice("changelog-producer", ChangelogProducer)

    @property
    def changelog_row_deduplicate(self) -> bool:
        """An update that changed nothing is none, in changelogs that compaction makes."""
        return self.is_on("changelog-producer.row-deduplicate")

    @property
    def changelog_row_deduplicate_ignore_fields(self) -> tuple[str, ...]:
        """Columns that don't count then."""
        return self._names("changelog-producer.row-deduplicate-ignore-fields")

    @property
    def sequence_fields(self) -> tuple[str, ...]:
        """Columns that order the rows of a key before arrival order does; empty when none are set."""
        return self._names("sequence.field")

    @property
    def sequence_descending(self) -> bool:
        return self._word("sequence.field.sort-order") == "descending"

    @property
    def row_kind_field(self) -> str | None:
        return self.text("rowkind.field")

    @property
    def ignore_delete(self) -> bool:
        return self.is_on("ignore-delete")

    @property
    def ignore_update_before(self) -> bool:
        return self.is_on("ignore-update-before")

    # ------------------------------------------------------------ compaction

    @property
    def write_only(self) -> bool:
        return self.is_on("write-only")

    @property
    def aggregation_removes_on_delete(self) -> bool:
        """merge-engine = aggregation: a -D removes the record, instead of taking its values back."""
        return self.is_on("aggregation.remove-record-on-delete")

    @property
    def num_levels(self) -> int:
        """Levels of the tree, level 0 included (Java: compaction trigger + 1 unless set)."""
        return self._int("num-levels", min(self.compaction_trigger + 1, INT_MAX))

    @property
    def compaction_trigger(self) -> int:
        """Sorted runs of a bucket from which on compaction is considered."""
        return self._int("num-sorted-run.compaction-trigger")

    @property
    def stop_trigger(self) -> int:
        """Sorted runs of a bucket above which a flush waits for its compaction."""
        trigger = self.compaction_trigger
        return max(trigger, self._int("num-sorted-run.stop-trigger", min(trigger + 3, INT_MAX)))

    @property
    def max_size_amplification_percent(self) -> int:
        return self._int("compaction.max-size-amplification-percent")

    @property
    def size_ratio_percent(self) -> int:
        return self._int("compaction.size-ratio")

    @property
    def offpeak_start_hour(self) -> int:
        return self._int("compaction.offpeak.start.hour")

    @property
    def offpeak_end_hour(self) -> int:
        return self._int("compaction.offpeak.end.hour")

    @property
    def offpeak_ratio_percent(self) -> int:
        return self._int("compaction.offpeak-ratio")

    @property
    def optimization_interval_ms(self) -> int | None:
        return self._optional("compaction.optimization-interval", parse_duration_ms)

    @property
    def compaction_total_size_threshold_bytes(self) -> int | None:
        return self._optional("compaction.total-size-threshold", parse_size_bytes)

    @property
    def compaction_incremental_size_threshold_bytes(self) -> int | None:
        return self._optional("compaction.incremental-size-threshold", parse_size_bytes)

    @property
    def force_up_level_0(self) -> bool:
        return self.is_on("compaction.force-up-level-0")

    @property
    def force_rewrite_all_files(self) -> bool:
        return self.is_on("compaction.force-rewrite-all-files")

    def compaction_file_size_bytes(self, *, has_primary_key: bool) -> int:
        """Smaller files are rewritten together with their neighbours, larger ones may stay as they are."""
        ratio = self._fraction("compaction.small-file-ratio")
        return int(self.target_file_size_bytes(has_primary_key=has_primary_key) * ratio)

    @property
    def compaction_min_file_num(self) -> int:
        """Append tables: how many small files are worth a rewrite."""
        return self._int("compaction.min.file-num")

    @property
    def compaction_file_num_limit(self) -> int:
        """Append tables: how many files are looked at together."""
        return self._int("compaction.file-num-limit")

    @property
    def sort_sample_magnification(self) -> int:
        """Sort compaction: how finely values are sampled."""
        return self._int("sort-compaction.local-sample.magnification")

    @property
    def commit_force_compact(self) -> bool:
        return self.is_on("commit.force-compact")

    @property
    def full_compaction_delta_commits(self) -> int | None:
        """Every how many commits all buckets written since are compacted in full; at least 1. Where that makes the
        changelog and nothing is said, at every commit.
        """
        commits = self._optional("full-compaction.delta-commits", parse_int)
        if commits is None:
            return 1 if self.changelog_producer is ChangelogProducer.FULL_COMPACTION else None
        return max(commits, 1)

    @property
    def partial_update_removes_on_delete(self) -> bool:
        return self.is_on("partial-update.remove-record-on-delete")

    @property
    def partial_update_removes_on_sequences(self) -> tuple[str, ...]:
        """Sequence fields whose deletes remove the record (`partial-update.remove-record-on-sequence-group`)."""
        return self._names("partial-update.remove-record-on-sequence-group")

    @property
    def needs_lookup(self) -> bool:
        """Whether rows of level 0 are visible (or tell what changed) only once they were compacted."""
        return (
            self.merge_engine is MergeEngine.FIRST_ROW
            or self.changelog_producer is ChangelogProducer.LOOKUP
            or self.deletion_vectors_enabled
            or self.is_on("force-lookup")
        )

    @property
    def deletion_vectors_enabled(self) -> bool:
        return self.is_on("deletion-vectors.enabled")

    @property
    def deletion_vectors_merge_on_read(self) -> bool:
        """Readers of a table with deletion vectors see level 0, too, and merge it."""
        return self.is_on("deletion-vectors.merge-on-read")

    @property
    def deletion_vectors_bitmap64(self) -> bool:
        """Whether vectors are written in the form that takes positions of 64 bits; both forms are read."""
        return self.is_on("deletion-vectors.bitmap64")

    @property
    def deletion_vector_index_file_target_bytes(self) -> int:
        """How large index files of vectors get, of tables without buckets."""
        return self._size_bytes("deletion-vector.index-file.target-size")

    @property
    def compaction_delete_ratio(self) -> float:
        """Files of append tables of whose rows a larger share is deleted are rewritten."""
        return self._fraction("compaction.delete-ratio-threshold")

    @property
    def pk_clustering_override(self) -> bool:
        """Whether files of a primary-key table are sorted by other columns than the key."""
        return self.is_on("pk-clustering-override")

    @property
    def lookup_wait(self) -> bool:
        return self.is_on("lookup-wait")

    @property
    def lookup_compact(self) -> LookupCompact:
        return self._choice("lookup-compact", LookupCompact)

    @property
    def lookup_compact_max_interval(self) -> int:
        """With gentle lookup compaction: after how many picks of nothing level 0 must go up."""
        trigger = self.compaction_trigger
        return max(trigger, self._int("lookup-compact.max-interval", min(trigger * 2, INT_MAX)))

    @property
    def lookup_cache_max_disk_bytes(self) -> int:
        return self._size_bytes("lookup.cache-max-disk-size")

    @property
    def lookup_cache_max_memory_bytes(self) -> int:
        return self._size_bytes("lookup.cache-max-memory-size")

    @property
    def lookup_cache_file_retention_ms(self) -> int:
        """For how long a file is kept ready after the last lookup in it."""
        return self._duration_ms("lookup.cache-file-retention")

    @property
    def lookup_cache_bloom_filter_fpp(self) -> float | None:
        """Share of absent keys that are taken for present ones; None: no Bloom filter."""
        return (
            self._fraction("lookup.cache.bloom.filter.fpp") if self.is_on("lookup.cache.bloom.filter.enabled") else None
        )

    @property
    def sort_spill_threshold(self) -> int | None:
        """How many runs a merge has open at most. Java's default is for the sake of its heap: stop trigger + 1."""
        return self._optional("sort-spill-threshold", parse_int)

    @property
    def record_level_expire_time_s(self) -> int | None:
        expire_ms = self._optional("record-level.expire-time", parse_duration_ms)
        return None if expire_ms is None else expire_ms // 1000

    @property
    def record_level_time_field(self) -> str | None:
        return self.text("record-level.time-field")

    # ------------------------------------------------------------ data files

    def file_format(self, level: int = 0) -> str:
        per_level = self._map("file.format.per.level")
        return per_level.get(str(level), self._word("file.format")).strip().lower()

    def file_compression(self, level: int = 0) -> str:
        per_level = self._map("file.compression.per.level")
        return per_level.get(str(level), self._trimmed("file.compression"))

    @property
    def file_suffix_compression(self) -> str:
        """What `file.suffix.include.compression` puts into names: the table's codec, whatever the level's is (as
        Java).
        """
        return self._trimmed("file.compression")

    @property
    def file_suffix_include_compression(self) -> bool:
        return self.is_on("file.suffix.include.compression")

    def changelog_file_format(self, level: int = 0) -> str:
        return self._word("changelog-file.format") or self.file_format(level)

    def changelog_file_compression(self, level: int = 0) -> str:
        return self._trimmed("changelog-file.compression") or self.file_compression(level)

    @property
    def zstd_level(self) -> int:
        return self._int("file.compression.zstd-level")

    @property
    def file_block_size_bytes(self) -> int | None:
        """Parquet row group or ORC stripe size; None leaves the format's default."""
        return self._optional("file.block-size", parse_size_bytes)

    @property
    def data_file_prefix(self) -> str:
        return self._text("data-file.prefix")

    @property
    def changelog_file_prefix(self) -> str:
        return self._text("changelog-file.prefix")

    @property
    def data_file_path_directory(self) -> str | None:
        return self.text("data-file.path-directory")

    @property
    def thin_mode(self) -> bool:
        """Whether primary-key files leave out the `_KEY_` columns."""
        return self.is_on("data-file.thin-mode")

    def target_file_size_bytes(self, *, has_primary_key: bool) -> int:
        default = 128 * MEBIBYTE if has_primary_key else 256 * MEBIBYTE
        return self._size_bytes("target-file-size", default)

    @property
    def target_file_row_num(self) -> int:
        return self._long("target-file-row-num")

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

    @property
    def stats_dense_store(self) -> bool:
        return self.is_on("metadata.stats-dense-store")

    @property
    def stats_keep_first_n_columns(self) -> int:
        return self._int("metadata.stats-keep-first-n-columns")

    # ------------------------------------------------------------ partitions, buckets

    @property
    def partition_default_name(self) -> str:
        return self._text("partition.default-name")

    @property
    def partition_legacy_name(self) -> bool:
        return self.is_on("partition.legacy-name")

    @property
    def dynamic_partition_overwrite(self) -> bool:
        return self.is_on("dynamic-partition-overwrite")

    @property
    def overwrite_upgrade(self) -> bool:
        return self.is_on("overwrite-upgrade")

    # ------------------------------------------------------------ write memory

    @property
    def write_buffer_size_bytes(self) -> int:
        return self._size_bytes("write-buffer-size")

    @property
    def write_buffer_spillable(self) -> bool:
        return self.is_on("write-buffer-spillable")

    # ------------------------------------------------------------ reading

    @property
    def split_target_size_bytes(self) -> int:
        return self._size_bytes("source.split.target-size")

    @property
    def split_open_file_cost_bytes(self) -> int:
        return self._size_bytes("source.split.open-file-cost")

    # ------------------------------------------------------------ manifests, commit

    @property
    def manifest_format(self) -> str:
        """Of manifests and manifest lists: all of a table are of one format, for Java reads them by this option."""
        return self._trimmed("manifest.format")

    @property
    def manifest_compression(self) -> str:
        return self._trimmed("manifest.compression")

    @property
    def manifest_target_file_size_bytes(self) -> int:
        return self._size_bytes("manifest.target-file-size")

    @property
    def manifest_full_compaction_size_bytes(self) -> int:
        return self._size_bytes("manifest.full-compaction-threshold-size")

    @property
    def manifest_merge_min_count(self) -> int:
        return self._int("manifest.merge-min-count")

    @property
    def manifest_delete_file_drop_stats(self) -> bool:
        return self.is_on("manifest.delete-file-drop-stats")

    @property
    def commit_max_retries(self) -> int:
        return self._int("commit.max-retries")

    @property
    def commit_timeout_ms(self) -> int | None:
        return self._optional("commit.timeout", parse_duration_ms)

    @property
    def commit_min_retry_wait_ms(self) -> int:
        return self._duration_ms("commit.min-retry-wait")

    @property
    def commit_max_retry_wait_ms(self) -> int:
        return self._duration_ms("commit.max-retry-wait")

    @property
    def commit_user_prefix(self) -> str | None:
        return self.text("commit.user-prefix")

    @property
    def commit_force_create_snapshot(self) -> bool:
        return self.is_on("commit.force-create-snapshot")

    @property
    def snapshot_ignore_empty_commit(self) -> bool:
        """For batch commits; a numbered commit makes a snapshot even without files."""
        return bool(self._parsed("snapshot.ignore-empty-commit", parse_boolean, True))

    @property
    def discard_duplicate_files(self) -> bool:
        return self.is_on("commit.discard-duplicate-files")

    @property
    def index_file_in_data_file_directory(self) -> bool:
        return self.is_on("index-file-in-data-file-dir")
