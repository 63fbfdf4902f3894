"""For every option that acts: the test that sets it and fails if it has no effect.

An option that the registry newly says acts belongs here; `test_registry.py` fails until it does. `test_inert_options.py`
runs each test with its option made inert, and fails if the test does not notice.
"""

from __future__ import annotations

from typing import Final

_SHOWN_BY: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tests/interop/test_fallback_branches.py": {
        "test_a_partition_is_read_from_one_branch_as_in_java": (
            "scan.fallback-branch",
            "scan.primary-branch",
        ),
    },
    "tests/interop/test_manifest_formats.py": {
        "test_manifests_of_each_format_are_read_by_java_and_continued_after_java": ("manifest.format",),
    },
    "tests/compaction/append/test_picker.py": {
        "test_settings_come_from_the_options_of_paimon": (
            "compaction.small-file-ratio",
            "compaction.force-rewrite-all-files",
            "compaction.min.file-num",
            "compaction.file-num-limit",
            "source.split.open-file-cost",
        ),
    },
    "tests/compaction/test_compacting_writer.py": {
        "test_options_decide_which_commits_compact": (
            "commit.force-compact",
            "force-lookup",
            "write-only",
        ),
        "test_a_failed_compaction_fails_the_writer_and_leaves_no_files": ("num-sorted-run.compaction-trigger",),
        "test_a_full_compaction_starts_after_the_running_one": ("full-compaction.delta-commits",),
        "test_writing_waits_when_too_many_runs_accumulate": ("num-sorted-run.stop-trigger",),
    },
    "tests/storage/commit/iceberg/test_publication.py": {
        "test_tags_are_references": ("metadata.iceberg.storage",),
        "test_options_decide_place_and_form": (
            "metadata.iceberg.storage-location",
            "metadata.iceberg.manifest-compression",
            "metadata.iceberg.manifest-legacy-version",
        ),
        "test_row_ids_of_version_3_are_never_given_twice": ("metadata.iceberg.format-version",),
        "test_manifests_are_merged_when_there_are_enough": (
            "metadata.iceberg.compaction.min.file-num",
            "metadata.iceberg.compaction.max.file-num",
        ),
        "test_old_versions_of_the_metadata_file_are_kept_as_told": (
            "metadata.iceberg.delete-after-commit.enabled",
            "metadata.iceberg.previous-versions-max",
        ),
    },
    "tests/storage/model/options/test_effects.py": {
        "test_options_decide_which_snapshots_are_kept": (
            "snapshot.num-retained.min",
            "snapshot.num-retained.max",
            "snapshot.time-retained",
        ),
        "test_retry_waits_stay_between_the_configured_bounds": (
            "commit.max-retries",
            "commit.min-retry-wait",
            "commit.max-retry-wait",
        ),
        "test_a_block_size_bounds_row_groups": (
            "file.block-size",
            "parquet.block.size",
        ),
        "test_dense_statistics_omit_columns_without_statistics": (
            "metadata.stats-mode",
            "metadata.stats-dense-store",
        ),
        "test_a_sequence_field_decides_which_row_of_a_key_wins": ("sequence.field",),
        "test_splits_have_the_configured_size": ("source.split.target-size",),
        "test_options_decide_which_updates_are_no_changes": (
            "changelog-producer.row-deduplicate",
            "changelog-producer.row-deduplicate-ignore-fields",
        ),
        "test_avro_codec_wins_over_the_codec_of_the_table": ("avro.codec",),
        "test_parquet_enable_dictionary_may_be_set_for_one_column": ("parquet.enable.dictionary#<column>",),
        "test_options_decide_format_and_codec": (
            "file.compression",
            "file.format",
            "orc.compress",
        ),
        "test_a_sort_sample_that_is_too_coarse_is_refused": ("sort-compaction.local-sample.magnification",),
        "test_a_commit_waits_for_lookups_unless_disabled": ("lookup-wait",),
        "test_an_expired_consumer_protects_no_snapshot": ("consumer.expiration-time",),
        "test_an_empty_commit_makes_a_snapshot_only_if_configured": ("snapshot.ignore-empty-commit",),
        "test_changelog_files_have_their_own_codec": (
            "changelog-producer",
            "changelog-file.compression",
        ),
        "test_options_decide_the_picked_compaction": (
            "compaction.max-size-amplification-percent",
            "compaction.size-ratio",
            "compaction.offpeak.start.hour",
            "compaction.offpeak.end.hour",
            "compaction.offpeak-ratio",
            "compaction.optimization-interval",
            "compaction.total-size-threshold",
            "compaction.incremental-size-threshold",
            "lookup-compact.max-interval",
        ),
        "test_changelog_only_consumers_protect_no_snapshot": ("consumer.changelog-only",),
        "test_data_files_are_stored_in_the_configured_directory": ("data-file.path-directory",),
        "test_files_roll_at_their_target_size_not_at_the_next_65536_rows": ("target-file-size",),
        "test_index_files_are_stored_in_the_configured_directory": ("index-file-in-data-file-dir",),
        "test_one_expiry_round_removes_at_most_the_configured_number": ("snapshot.expire.limit",),
        "test_orc_dictionary_key_threshold_turns_dictionaries_off": ("orc.dictionary.key.threshold",),
        "test_orc_stripe_size_bounds_stripes": ("orc.stripe.size",),
        "test_parquet_compression_codec_zstd_level_wins_over_that_of_the_table": (
            "parquet.compression.codec.zstd.level",
        ),
        "test_parquet_enable_dictionary_decides_about_dictionary_pages": ("parquet.enable.dictionary",),
        "test_parquet_page_size_makes_more_offsets": ("parquet.page.size",),
        "test_rows_with_a_null_partition_use_the_configured_name": ("partition.default-name",),
        "test_manifests_have_the_configured_codec": ("manifest.compression",),
        "test_partitions_are_named_by_the_internal_value_or_as_sql_casts_it": ("partition.legacy-name",),
        "test_a_full_buffer_is_spilled_or_flushed": ("write-buffer-spillable",),
    },
    "tests/compaction/jobs/test_compact_job.py": {
        "test_the_job_commits_under_its_own_user": ("commit.user-prefix",),
    },
    "tests/compaction/merge_tree/test_lookup_merge.py": {
        "test_a_single_row_is_kept_when_merging_would_put_null_into_a_not_null_column": (
            "fields.<column>.ignore-retract",
        ),
    },
    "tests/compaction/merge_tree/test_universal_compaction.py": {
        "test_the_picker_of_a_table_follows_its_options": (
            "compaction.force-up-level-0",
            "lookup-compact",
        ),
    },
    "tests/compaction/test_changelogs.py": {
        "test_an_expired_row_is_not_reported_as_a_previous_row": (
            "record-level.expire-time",
            "record-level.time-field",
        ),
    },
    "tests/storage/write/assigners/test_dynamic.py": {
        "test_options_decide_the_number_of_buckets": (
            "dynamic-bucket.target-row-num",
            "dynamic-bucket.initial-buckets",
            "dynamic-bucket.max-buckets",
            "dynamic-bucket.assigner-parallelism",
        ),
    },
    "tests/storage/write/assigners/cross_partition/test_writing.py": {
        "test_keys_expire_from_the_index_after_the_configured_time": ("cross-partition-upsert.index-ttl",),
        "test_the_index_is_built_from_several_parts_in_parallel": ("cross-partition-upsert.bootstrap-parallelism",),
    },
    "tests/compaction/merge_tree/test_upgrade_strategy.py": {
        "test_upgrade_strategy": ("file.format.per.level",),
    },
    "tests/storage/files/test_file_indexes.py": {
        "test_files_of_every_format_have_the_indexes_that_the_options_name": (
            "file-index.<type>.columns",
            "file-index.*",
        ),
        "test_an_index_is_embedded_in_the_manifest_up_to_the_threshold": ("file-index.in-manifest-threshold",),
        "test_a_scan_reads_no_file_that_the_index_rules_out": ("file-index.read.enabled",),
    },
    "tests/interop/test_deletion_vectors.py": {
        "test_a_table_with_deletion_vectors_is_read_as_in_java": (
            "deletion-vectors.enabled",
            "deletion-vectors.merge-on-read",
        ),
    },
    "tests/interop/test_expiry.py": {
        "test_expiry_keeps_the_same_changelogs_as_java": ("changelog.num-retained.max",),
    },
    "tests/storage/commit/expire/test_retention.py": {
        "test_changelogs_have_their_own_retention": (
            "changelog.num-retained.min",
            "changelog.time-retained",
        ),
    },
    "tests/interop/test_order_of_rows.py": {
        "test_the_same_rows_win_as_in_java": ("sequence.field.sort-order",),
        "test_a_writer_drops_the_same_rows_as_javas": (
            "ignore-delete",
            "ignore-update-before",
        ),
    },
    "tests/interop/test_schemas.py": {
        "test_a_column_type_changes_only_where_java_allows_it": ("disable-explicit-type-casting",),
    },
    "tests/interop/test_materialized_tables.py": {
        "test_a_definition_that_flink_could_not_open_is_refused": (
            "materialized-table.definition-query",
            "materialized-table.interval-freshness",
            "materialized-table.interval-freshness.time-unit",
            "materialized-table.logical-refresh-mode",
            "materialized-table.refresh-mode",
        ),
        "test_a_suspended_table_is_not_refreshed": ("materialized-table.refresh-status",),
    },
    "tests/interop/test_format_tables.py": {
        "test_lines_of_text_are_the_same_for_both": ("text.line-delimiter",),
        "test_options_have_the_same_meaning_for_both": (
            "csv.field-delimiter",
            "csv.include-header",
            "csv.quote-character",
            "csv.escape-character",
            "csv.line-delimiter",
            "csv.null-literal",
            "json.line-delimiter",
            "format-table.file.compression",
            "format-table.partition-path-only-value",
        ),
    },
    "tests/storage/kinds/format_tables/test_text_formats.py": {
        "test_csv_mode_decides_about_unparsable_fields": ("csv.mode",),
        "test_invalid_json_raises_or_is_skipped": ("json.ignore-parse-errors",),
    },
    "tests/interop/test_types.py": {
        "test_every_row_is_in_the_same_bucket_as_in_java": (
            "bucket",
            "bucket-function.type",
        ),
        "test_the_bucket_key_decides_about_the_bucket_as_in_java": ("bucket-key",),
    },
    "tests/compaction/test_postpone_compaction.py": {
        "test_options_decide_the_bucket_count_of_a_partition": (
            "postpone.default-bucket-num",
            "postpone.target-row-num-per-bucket",
            "postpone.target-size-per-bucket",
        ),
        "test_options_decide_the_bucket_count_of_a_new_partition_in_a_batch": (
            "postpone.batch-write-fixed-bucket.max-parallelism",
        ),
        "test_a_partition_that_is_too_small_by_the_load_factor_is_rescaled_first": (
            "postpone.batch-write-fixed-bucket.rescale-load-factor",
        ),
        "test_without_the_option_batches_are_postponed_too": ("postpone.batch-write-fixed-bucket",),
    },
    "tests/storage/catalog/rest/test_rest_catalog.py": {
        "test_a_wrong_token_and_an_unavailable_server_raise_different_errors": ("token",),
        "test_a_provider_of_tokens_needs_one": ("token.provider",),
        "test_headers_and_the_prefix_of_the_catalog_are_sent": (
            "header.*",
            "header.User-Agent",
            "prefix",
            "uri",
        ),
        "test_the_server_gives_credentials_for_the_files_of_a_table": ("data-token.enabled",),
    },
    "tests/storage/fileio/test_hdfs.py": {
        "test_a_catalog_passes_on_the_folder_of_the_settings": ("hadoop-conf-dir",),
    },
    "tests/storage/catalog/hive/test_metastore_address.py": {
        "test_the_configuration_of_hive_names_the_metastore": ("hive-conf-dir",),
    },
    "tests/storage/catalog/hive/test_hive_catalog.py": {
        "test_catalog_options_change_metastore_entries": ("location-in-properties",),
        "test_tables_of_hive_in_known_formats_are_format_tables_unless_switched_off": ("format-table.enabled",),
        "test_the_files_of_a_dropped_external_table_are_kept_and_can_be_registered_again": ("table.type",),
        "test_a_schema_change_updates_partitions_of_the_metastore_unless_switched_off": ("alter-table-cascade",),
        "test_a_schema_change_updates_statistics_of_the_metastore_unless_switched_off": ("hive.skip-update-stats",),
        "test_names_with_capital_letters_are_refused_unless_enabled": ("case-sensitive",),
        "test_the_metastore_has_the_partitions_that_have_rows": ("metastore.partitioned-table",),
    },
    "tests/storage/catalog/jdbc/test_database_address.py": {
        "test_a_uri_of_java_leads_to_the_same_database": (
            "jdbc.*",
            "client-pool-size",
        ),
    },
    "tests/storage/catalog/jdbc/test_database_lock.py": {
        "test_options_decide_how_long_a_process_waits_for_a_lock": (
            "lock-acquire-timeout",
            "lock-check-max-sleep",
        ),
        "test_commits_and_changes_wait_for_the_lock": ("lock.enabled",),
        "test_a_lock_name_is_cut_to_the_configured_length": ("lock-key-max-length",),
    },
    "tests/storage/catalog/jdbc/test_jdbc_catalog.py": {
        "test_two_catalogs_in_one_database_do_not_see_each_other": ("catalog-key",),
        "test_options_and_keys_are_mirrored_unless_disabled": ("sync-all-properties",),
    },
    "tests/storage/catalog/test_options.py": {
        "test_new_tables_get_the_default_options_of_the_catalog_unless_overridden": ("table-default.*",),
        "test_options_that_would_be_ignored_are_refused": (
            "warehouse",
            "metastore",
        ),
    },
    "tests/storage/kinds/system_tables/test_metadata_tables.py": {
        "test_the_options_of_a_catalog_are_shown_on_request_only": ("catalog-options-table.enabled",),
    },
    "tests/storage/files/test_writer.py": {
        "test_thin_files_leave_out_the_key_columns_and_keep_their_statistics": ("data-file.thin-mode",),
        "test_a_full_disk_leaves_no_files": ("target-file-row-num",),
        "test_a_stronger_zstd_makes_smaller_files": ("file.compression.zstd-level",),
        "test_files_are_compressed_by_the_codec_of_their_level": ("file.compression.per.level",),
        "test_names_follow_the_options": (
            "changelog-file.format",
            "changelog-file.prefix",
            "file.suffix.include.compression",
            "data-file.prefix",
        ),
    },
    "tests/storage/files/test_statistics.py": {
        "test_dropped_and_dense_statistics_are_unknown": ("fields.<column>.stats-mode",),
    },
    "tests/storage/files/test_stats_collection.py": {
        "test_changelog_files_have_their_own_mode": ("changelog-file.stats-mode",),
        "test_columns_get_the_same_mode_as_in_java": (
            "metadata.stats-mode.per.level",
            "metadata.stats-keep-first-n-columns",
        ),
    },
    "tests/storage/write/lookup/test_lookup_cache.py": {
        "test_bloom_filter_options_decide_its_memory": (
            "lookup.cache.bloom.filter.enabled",
            "lookup.cache.bloom.filter.fpp",
        ),
        "test_a_file_is_read_once_and_kept_until_it_is_unused_for_the_retention_time": ("lookup.cache-file-retention",),
        "test_cached_files_stay_within_the_disk_limit_and_the_last_used_is_kept": ("lookup.cache-max-disk-size",),
        "test_memory_of_the_cache_stays_within_its_limit": ("lookup.cache-max-memory-size",),
    },
    "tests/storage/write/lookup/test_row_lookup.py": {
        "test_a_looked_up_row_is_merged_by_the_merge_engine": ("partial-update.remove-record-on-delete",),
    },
    "tests/storage/merge/aggregators/test_against_rows.py": {
        "test_a_column_aggregates_like_its_rows": (
            "fields.<column>.distinct",
            "fields.<column>.list-agg-delimiter",
            "fields.<column>.nested-key",
            "fields.<column>.nested-key-null-strategy",
            "fields.<column>.nested-sequence-field",
            "fields.<column>.count-limit",
            "fields.<column>.ts-field",
        ),
    },
    "tests/storage/merge/merge_functions/test_against_rows.py": {
        "test_columns_merge_as_rows_do": (
            "fields.default-aggregate-function",
            "fields.<column>.aggregate-function",
        ),
    },
    "tests/storage/merge/test_multi_pass_merge.py": {
        "test_sort_spill_threshold": ("sort-spill-threshold",),
    },
    "tests/storage/model/options/test_table_options.py": {
        "test_option_derivation": ("num-levels",),
    },
    "tests/storage/read/test_merge_engines.py": {
        "test_a_delete_that_would_leave_null_in_a_not_null_column_is_refused": ("fields.<column>.sequence-group",),
        "test_a_delete_is_refused_if_a_non_removing_sequence_group_would_keep_the_row": (
            "partial-update.remove-record-on-sequence-group",
        ),
        "test_not_null_columns_accept_deletes_that_leave_no_null": (
            "merge-engine",
            "aggregation.remove-record-on-delete",
        ),
    },
    "tests/storage/commit/test_table_commit.py": {
        "test_a_batch_commit_without_files_makes_no_snapshot": ("commit.force-create-snapshot",),
        "test_delete_entries_keep_statistics_unless_disabled": ("manifest.delete-file-drop-stats",),
        "test_duplicate_files_are_dropped_if_the_option_is_set": ("commit.discard-duplicate-files",),
        "test_overwrite_upgrade_can_be_disabled": ("overwrite-upgrade",),
    },
    "tests/storage/commit/manifests/test_manifest_entry.py": {
        "test_a_large_manifest_is_rolled_without_losing_entries": ("manifest.target-file-size",),
    },
    "tests/storage/commit/manifests/test_manifest_merge.py": {
        "test_both_kinds_of_merge_occur_with_small_limits": (
            "manifest.full-compaction-threshold-size",
            "manifest.merge-min-count",
        ),
    },
    "tests/storage/commit/test_publisher.py": {
        "test_a_silent_store_ends_the_commit_at_its_timeout_without_deleting_files": ("commit.timeout",),
    },
    "tests/storage/ddl/test_schema_changes.py": {
        "test_a_new_column_is_placed_as_requested": ("add-column-before-partition",),
        "test_not_null_can_be_added_only_if_the_option_allows_it": ("alter-column-null-to-not-null.disabled",),
        "test_options_can_change_unless_files_depend_on_them": ("deletion-vectors.modifiable",),
    },
    "tests/storage/ddl/test_schema_creation.py": {
        "test_keys_given_as_options_move_into_the_schema": (
            "primary-key",
            "partition",
        ),
        "test_contradictory_schemas_are_refused_with_name_reason_and_remedy": (
            "type",
            "path",
            "auto-create",
        ),
        "test_with_nullable_primary_keys_key_columns_accept_nulls": ("primary-key.nullable",),
    },
    "tests/storage/kinds/system_tables/test_audit_log.py": {
        "test_the_audit_log_has_sequence_numbers_on_request": ("table-read.sequence-number.enabled",),
    },
    "tests/storage/maintenance/test_automatic_tags.py": {
        "test_the_schedule_decides_which_snapshot_gets_which_tag": (
            "tag.automatic-creation",
            "tag.automatic-completion",
            "tag.creation-delay",
            "tag.num-retained-max",
            "sink.watermark-time-zone",
        ),
        "test_a_batch_write_is_tagged_with_its_day_and_the_next_one_moves_the_tag": ("sink.process-time-zone",),
        "test_a_tag_gets_the_default_retention_and_expires_after_it": ("tag.default-time-retained",),
        "test_tags_are_kept_if_time_expiry_is_disabled": ("tag.time-expire-enabled",),
        "test_batch_tags_may_have_a_custom_name_and_a_limit": ("tag.batch.customized-name",),
        "test_a_success_file_is_created_and_deleted_with_the_tag": ("tag.create-success-file",),
    },
    "tests/storage/maintenance/test_partition_expiry.py": {
        "test_partitions_expire_by_the_time_in_their_values": (
            "partition.expiration-time",
            "partition.expiration-max-num",
            "partition.timestamp-formatter",
            "partition.timestamp-pattern",
        ),
        "test_partitions_expire_by_their_last_update": ("partition.expiration-strategy",),
        "test_partitions_expire_in_batches_of_one_commit_each": ("partition.expiration-batch-size",),
        "test_a_writer_drops_old_partitions_when_it_closes": (
            "partition.expiration-check-interval",
            "end-input.check-partition-expire",
        ),
        "test_a_compaction_job_drops_old_partitions_or_skips_them": ("compaction.skip-expired-partitions",),
        "test_rows_of_a_partition_that_names_no_time_are_refused_where_the_table_is_strict": (
            "partition.timestamp-format.strict",
        ),
        "test_empty_directories_are_deleted_with_snapshots_if_enabled": ("snapshot.clean-empty-directories",),
        "test_partitions_are_marked_done_manually_and_after_batch_writes": ("partition.end-input-to-done",),
    },
    "tests/storage/read/test_auto_tags.py": {
        "test_the_time_of_an_automatic_tag_is_parsed_from_its_name": (
            "tag.creation-period",
            "tag.period-formatter",
            "tag.creation-period-duration",
        ),
    },
    "tests/storage/read/changes/test_overwrites.py": {
        "test_overwritten_rows_are_returned_as_changes_if_configured": (
            "streaming-read-overwrite",
            "streaming-read-append-overwrite",
        ),
    },
    "tests/storage/read/stream/test_consumer_progress.py": {
        "test_at_least_once_writes_positions_less_often_and_at_the_end": ("consumer.mode",),
    },
    "tests/storage/write/test_row_converter.py": {
        "test_rowkind_field_decides_the_kind_and_stays_a_column": ("rowkind.field",),
    },
    "tests/storage/read/evolution/test_blob_columns.py": {
        "test_descriptors_refer_to_the_bytes_of_a_read": ("blob-as-descriptor",),
    },
    "tests/interop/test_row_id_writes.py": {
        "test_our_row_ids_and_blobs_are_read_by_java_and_pypaimon": (
            "row-tracking.enabled",
            "data-evolution.enabled",
            "blob.target-file-size",
        ),
    },
    "tests/storage/write/test_write_buffer.py": {
        "test_a_buffer_of_many_segments_is_flushed": ("write-buffer-size",),
    },
    "tests/tidelake/test_row_changes.py": {
        "test_a_large_file_is_rewritten_once_too_many_of_its_rows_are_deleted": ("compaction.delete-ratio-threshold",),
    },
    "tests/storage/write/test_deletion_vector_maintainer.py": {
        "test_both_vector_formats_may_share_a_file_and_a_changed_vector_uses_the_table_format": (
            "deletion-vectors.bitmap64",
        ),
        "test_without_buckets_index_files_roll_and_only_changed_ones_are_replaced": (
            "deletion-vector.index-file.target-size",
        ),
    },
    "tests/tidelake/test_overwrite.py": {
        "test_an_overwrite_replaces_rows": ("dynamic-partition-overwrite",),
    },
    "tests/tidelake/test_reading_options.py": {
        "test_a_consumer_named_by_options_continues_at_its_position": (
            "consumer-id",
            "consumer.ignore-progress",
        ),
        "test_a_dynamic_option_opens_a_branch": ("branch",),
        "test_options_limit_each_read_to_one_bucket": ("scan.bucket",),
        "test_a_follow_ends_before_the_first_snapshot_beyond_the_watermark": ("scan.bounded.watermark",),
        "test_a_scan_can_be_limited_to_files_created_since_a_time": ("scan.file-creation-time-millis",),
        "test_following_from_a_time_between_snapshots_starts_with_changes": ("scan.creation-time-millis",),
        "test_a_follower_waits_at_most_the_discovery_interval": ("continuous.discovery-interval",),
        "test_scan_options_select_the_time": (
            "scan.timestamp-millis",
            "scan.timestamp",
        ),
        "test_scan_options_select_the_snapshot": (
            "scan.snapshot-id",
            "scan.mode",
            "scan.tag-name",
            "scan.version",
            "scan.watermark",
            "incremental-between-timestamp",
            "incremental-between-scan-mode",
            "incremental-to-auto-tag",
        ),
        "test_a_snapshot_is_returned_after_the_delay": ("streaming.read.snapshot.delay",),
        "test_options_select_the_range_of_changes": (
            "incremental-between",
            "incremental-between-tag-to-snapshot",
        ),
    },
}

OPTION_TESTS: Final = {
    option: f"{module}::{test}"
    for module, tests in _SHOWN_BY.items()
    for test, options in tests.items()
    for option in options
}
