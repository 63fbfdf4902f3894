"""For every option that acts: the test that sets it and would fail if nothing came of it.

An option that the registry newly says acts belongs here; `test_registry.py` fails until it does.
"""

from __future__ import annotations

from typing import Final

_SHOWN_BY: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "tests/interop/test_fallback_branches.py": {
        "test_a_partition_comes_from_one_branch_as_in_java": ("scan.fallback-branch", "scan.primary-branch"),
    },
    "tests/interop/test_manifest_formats.py": {
        "test_java_opens_what_we_write_and_we_go_on_after_java": ("manifest.format",),
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
        "test_a_bucket_that_was_being_opened_meanwhile_hears_of_the_hurry_too": ("commit.force-compact",),
        "test_a_compaction_that_failed_fails_the_writer_and_leaves_nothing": ("num-sorted-run.compaction-trigger",),
        "test_a_full_compaction_follows_the_one_that_runs": ("full-compaction.delta-commits",),
        "test_which_commits_compact": (
            "force-lookup",
            "write-only",
        ),
        "test_writing_waits_when_too_many_runs_pile_up": ("num-sorted-run.stop-trigger",),
    },
    "tests/compaction/jobs/test_compact_job.py": {
        "test_an_expiry_that_fails_does_not_fail_the_compaction": (
            "snapshot.num-retained.min",
            "snapshot.num-retained.max",
        ),
        "test_old_snapshots_expire_when_the_job_has_published": ("snapshot.time-retained",),
        "test_others_that_are_only_quicker_cost_no_work": ("commit.max-retries",),
        "test_sorting_makes_filters_read_fewer_files": (
            "file.block-size",
            "metadata.stats-mode",
            "source.split.target-size",
        ),
        "test_the_job_is_a_commit_user_of_its_own": ("commit.user-prefix",),
    },
    "tests/compaction/merge_tree/test_changelog_merge.py": {
        "test_what_full_compaction_tells_of_a_key": (
            "changelog-producer.row-deduplicate",
            "changelog-producer.row-deduplicate-ignore-fields",
        ),
    },
    "tests/compaction/merge_tree/test_lookup_merge.py": {
        "test_a_single_row_stays_where_the_engine_would_leave_null_in_a_column_that_takes_none": (
            "fields.<column>.ignore-retract",
        ),
    },
    "tests/compaction/merge_tree/test_universal_compaction.py": {
        "test_the_picker_of_a_table_follows_its_options": (
            "compaction.force-up-level-0",
            "lookup-compact",
        ),
    },
    "tests/compaction/merge_tree/test_record_level_expire.py": {
        "test_record_level_expire": (
            "record-level.expire-time",
            "record-level.time-field",
        ),
    },
    "tests/storage/write/assigners/test_dynamic.py": {
        "test_options_say_how_many_buckets_there_are": (
            "dynamic-bucket.target-row-num",
            "dynamic-bucket.initial-buckets",
            "dynamic-bucket.max-buckets",
            "dynamic-bucket.assigner-parallelism",
        ),
    },
    "tests/storage/write/assigners/cross_partition/test_writing.py": {
        "test_keys_are_forgotten_after_the_time_that_an_option_names": ("cross-partition-upsert.index-ttl",),
        "test_the_index_is_made_of_several_parts_at_once": ("cross-partition-upsert.bootstrap-parallelism",),
    },
    "tests/compaction/merge_tree/test_upgrade_strategy.py": {
        "test_upgrade_strategy": ("file.format.per.level",),
    },
    "tests/storage/files/test_file_indexes.py": {
        "test_files_of_every_format_have_the_indexes_that_the_options_name": (
            "file-index.<type>.columns",
            "file-index.*",
        ),
        "test_an_index_lies_in_the_manifest_up_to_the_threshold": ("file-index.in-manifest-threshold",),
        "test_a_scan_reads_no_file_that_the_index_rules_out": ("file-index.read.enabled",),
    },
    "tests/ingest/spark/test_sink.py": {
        "test_a_sequence_field_orders_rows_in_any_batch": ("sequence.field",),
    },
    "tests/interop/test_deletion_vectors.py": {
        "test_a_table_with_vectors_is_read_as_java_reads_it": (
            "deletion-vectors.enabled",
            "deletion-vectors.merge-on-read",
        ),
    },
    "tests/interop/test_expiry.py": {
        "test_changelogs_that_outlive_their_snapshots_are_those_that_java_keeps": (
            "changelog.num-retained.min",
            "changelog.num-retained.max",
            "changelog.time-retained",
        ),
    },
    "tests/interop/test_order_of_rows.py": {
        "test_the_same_rows_win": (
            "sequence.field.sort-order",
            "ignore-delete",
            "ignore-update-before",
        ),
    },
    "tests/interop/test_schemas.py": {
        "test_a_column_takes_another_type_where_it_does_in_java": ("disable-explicit-type-casting",),
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
        "test_lines_of_text_are_the_same_to_both": ("text.line-delimiter",),
        "test_options_mean_the_same_to_both": (
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
    "tests/storage/format_tables/test_text_formats.py": {
        "test_a_field_that_is_no_value_is_null_or_left_out_or_an_error_as_csv_mode_says": ("csv.mode",),
        "test_what_json_is_none_is_an_error_or_passed_over": ("json.ignore-parse-errors",),
    },
    "tests/interop/test_types.py": {
        "test_every_row_lies_in_the_bucket_where_java_puts_it": (
            "bucket",
            "bucket-key",
            "bucket-function.type",
        ),
    },
    "tests/compaction/test_postpone_compaction.py": {
        "test_how_many_buckets_a_partition_gets": (
            "postpone.default-bucket-num",
            "postpone.target-row-num-per-bucket",
            "postpone.target-size-per-bucket",
        ),
        "test_how_many_buckets_a_batch_gives_a_new_partition": ("postpone.batch-write-fixed-bucket.max-parallelism",),
        "test_a_partition_that_is_too_small_by_the_load_factor_is_rescaled_first": (
            "postpone.batch-write-fixed-bucket.rescale-load-factor",
        ),
        "test_without_the_option_batches_wait_too": ("postpone.batch-write-fixed-bucket",),
    },
    "tests/storage/catalog/rest/test_rest_catalog.py": {
        "test_a_wrong_token_is_told_apart_from_a_server_that_is_away": ("token", "token.provider"),
        "test_headers_and_the_prefix_of_the_catalog_are_sent": ("header.*", "header.User-Agent", "prefix"),
        "test_the_server_gives_credentials_for_the_files_of_a_table": ("data-token.enabled",),
    },
    "tests/storage/catalog/hive/test_address.py": {
        "test_the_configuration_of_hive_names_the_metastore": ("hive-conf-dir",),
    },
    "tests/storage/catalog/hive/test_hive_catalog.py": {
        "test_what_the_catalogs_options_say_of_entries": ("location-in-properties",),
        "test_tables_of_hive_in_known_formats_are_format_tables_unless_switched_off": ("format-table.enabled",),
        "test_the_files_of_an_external_table_stay_and_it_may_come_back": ("table.type",),
        "test_a_change_of_the_schema_is_shown_and_options_that_went_are_gone": (
            "alter-table-cascade",
            "hive.skip-update-stats",
        ),
        "test_names_with_capital_letters_are_refused_unless_that_is_asked_for": ("case-sensitive",),
        "test_the_metastore_has_the_partitions_that_have_rows": ("metastore.partitioned-table",),
    },
    "tests/storage/catalog/jdbc/test_address.py": {
        "test_a_uri_of_java_leads_to_the_same_database": ("uri", "jdbc.*", "client-pool-size"),
    },
    "tests/storage/catalog/jdbc/test_lock.py": {
        "test_who_waits_too_long_is_told_who_holds_it": ("lock-acquire-timeout", "lock-check-max-sleep"),
        "test_commits_and_changes_wait_for_the_lock": ("lock.enabled",),
        "test_the_name_of_a_lock_has_the_length_that_the_catalog_says": ("lock-key-max-length",),
    },
    "tests/storage/catalog/jdbc/test_jdbc_catalog.py": {
        "test_two_catalogs_in_one_database_do_not_see_each_other": ("catalog-key",),
        "test_options_and_keys_are_mirrored_unless_that_is_off": ("sync-all-properties",),
    },
    "tests/storage/catalog/test_options.py": {
        "test_new_tables_have_the_options_that_the_catalog_gives_them_unless_they_say_otherwise": ("table-default.*",),
        "test_what_would_be_ignored_is_refused": (
            "warehouse",
            "metastore",
        ),
    },
    "tests/storage/system_tables/test_metadata_tables.py": {
        "test_the_options_of_a_catalog_are_shown_on_request_only": ("catalog-options-table.enabled",),
    },
    "tests/storage/files/formats/test_avro.py": {
        "test_the_codec_option_of_avro_comes_before_the_tables": ("avro.codec",),
    },
    "tests/storage/files/formats/test_parquet.py": {
        "test_options_of_parquet_override_the_choice": ("parquet.enable.dictionary#<column>",),
    },
    "tests/storage/files/formats/test_round_trips.py": {
        "test_a_codec_that_the_format_lacks_is_refused_with_those_it_has": ("file.compression",),
        "test_what_java_could_not_read_back_is_refused_with_the_column_and_a_way_out": ("file.format",),
    },
    "tests/storage/files/test_reader.py": {
        "test_keys_are_read_from_their_columns_and_system_columns_as_stored": ("data-file.thin-mode",),
    },
    "tests/storage/files/test_statistics.py": {
        "test_dropped_and_dense_statistics_are_unknown": ("fields.<column>.stats-mode",),
    },
    "tests/storage/files/test_stats_collection.py": {
        "test_changelog_files_have_a_mode_of_their_own": ("changelog-file.stats-mode",),
        "test_columns_get_the_mode_that_java_gives_them": (
            "metadata.stats-mode.per.level",
            "metadata.stats-keep-first-n-columns",
        ),
    },
    "tests/storage/files/test_writer.py": {
        "test_a_full_disk_leaves_nothing_behind": ("target-file-row-num",),
        "test_a_stronger_zstd_makes_smaller_files": ("file.compression.zstd-level",),
        "test_files_are_compressed_as_their_level_asks": ("file.compression.per.level",),
        "test_names_follow_the_options": (
            "changelog-file.format",
            "changelog-file.prefix",
            "file.suffix.include.compression",
            "data-file.prefix",
        ),
    },
    "tests/storage/lookup/test_lookup_cache.py": {
        "test_a_bloom_filter_takes_the_memory_that_its_options_say": (
            "lookup.cache.bloom.filter.enabled",
            "lookup.cache.bloom.filter.fpp",
        ),
        "test_a_file_is_read_once_and_kept_until_nobody_asked_it_for_as_long_as_files_are_retained": (
            "lookup.cache-file-retention",
        ),
        "test_kept_files_stay_within_the_disk_that_they_may_take_and_the_one_asked_last_stays": (
            "lookup.cache-max-disk-size",
        ),
        "test_memory_beside_the_files_stays_within_its_limit": ("lookup.cache-max-memory-size",),
    },
    "tests/storage/lookup/test_row_lookup.py": {
        "test_a_row_is_what_the_merge_engine_makes_of_its_versions": ("partial-update.remove-record-on-delete",),
    },
    "tests/storage/merge/aggregators/test_step_by_step.py": {
        "test_at_once_is_as_one_after_the_other": (
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
    "tests/storage/options/test_effects.py": {
        "test_a_coarse_sample_is_too_coarse_to_sort_by": ("sort-compaction.local-sample.magnification",),
        "test_a_commit_waits_for_lookups_unless_the_table_says_otherwise": ("lookup-wait",),
        "test_a_consumer_that_was_idle_for_too_long_holds_nothing_back": ("consumer.expiration-time",),
        "test_an_empty_commit_makes_a_snapshot_only_where_the_table_asks_for_it": ("snapshot.ignore-empty-commit",),
        "test_changelog_files_have_a_codec_of_their_own": (
            "changelog-producer",
            "changelog-file.compression",
        ),
        "test_compaction_is_picked_by_the_options": (
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
        "test_consumers_of_changelogs_only_hold_no_snapshot_back": ("consumer.changelog-only",),
        "test_data_files_lie_in_the_directory_that_the_table_names": ("data-file.path-directory",),
        "test_dense_statistics_leave_out_columns_without_any": ("metadata.stats-dense-store",),
        "test_files_roll_at_their_target_not_at_the_next_65536_rows": ("target-file-size",),
        "test_index_files_lie_where_the_table_says": ("index-file-in-data-file-dir",),
        "test_one_round_of_expiry_removes_as_many_snapshots_as_the_table_allows": ("snapshot.expire.limit",),
        "test_orc_dictionary_key_threshold_turns_dictionaries_off": ("orc.dictionary.key.threshold",),
        "test_orc_files_are_compressed_as_they_say": ("orc.compress",),
        "test_orc_stripe_size_bounds_stripes": ("orc.stripe.size",),
        "test_parquet_block_size_bounds_row_groups": ("parquet.block.size",),
        "test_parquet_compression_codec_zstd_level_goes_before_the_tables": ("parquet.compression.codec.zstd.level",),
        "test_parquet_enable_dictionary_decides_about_dictionary_pages": ("parquet.enable.dictionary",),
        "test_parquet_page_size_makes_more_offsets": ("parquet.page.size",),
        "test_retries_wait_between_what_the_table_names": (
            "commit.min-retry-wait",
            "commit.max-retry-wait",
        ),
        "test_rows_without_a_partition_lie_under_the_name_that_the_table_gives_them": ("partition.default-name",),
    },
    "tests/storage/options/test_table_options.py": {
        "test_option_derivation": ("num-levels",),
    },
    "tests/storage/read/test_merge_engines.py": {
        "test_a_delete_that_would_leave_null_where_none_may_be_is_refused": ("fields.<column>.sequence-group",),
        "test_a_group_that_does_not_remove_takes_back_what_a_delete_of_another_would_remove": (
            "partial-update.remove-record-on-sequence-group",
        ),
        "test_columns_without_nulls_take_deletes_that_leave_none": (
            "merge-engine",
            "aggregation.remove-record-on-delete",
        ),
    },
    "tests/storage/commit/test_table_commit.py": {
        "test_a_batch_commit_without_files_makes_no_snapshot": ("commit.force-create-snapshot",),
        "test_deletes_keep_their_statistics_unless_the_table_says_otherwise": ("manifest.delete-file-drop-stats",),
        "test_duplicate_files_are_dropped_where_the_table_asks_for_it": ("commit.discard-duplicate-files",),
        "test_the_table_may_ask_to_leave_levels_alone": ("overwrite-upgrade",),
    },
    "tests/storage/manifests/test_manifest_entry.py": {
        "test_a_large_manifest_is_rolled_and_none_is_lost": ("manifest.target-file-size",),
    },
    "tests/storage/manifests/test_manifest_merge.py": {
        "test_whatever_is_committed_each_state_is_the_last_one_and_its_changes": (
            "manifest.full-compaction-threshold-size",
            "manifest.merge-min-count",
        ),
    },
    "tests/storage/manifests/test_record_file.py": {
        "test_an_unknown_codec_option_is_refused_by_name": ("manifest.compression",),
    },
    "tests/storage/commit/test_publisher.py": {
        "test_a_store_that_never_answers_is_given_up_when_the_time_is_over_and_nothing_is_deleted": ("commit.timeout",),
    },
    "tests/storage/types/test_partition_text.py": {
        "test_partitions_lie_where_java_puts_them": ("partition.legacy-name",),
    },
    "tests/storage/ddl/test_schema_changes.py": {
        "test_a_new_column_goes_where_it_is_wanted": ("add-column-before-partition",),
        "test_nulls_are_forbidden_only_where_the_table_says_that_it_may_be": (
            "alter-column-null-to-not-null.disabled",
        ),
        "test_options_change_where_files_allow_it": ("deletion-vectors.modifiable",),
    },
    "tests/storage/ddl/test_schema_creation.py": {
        "test_keys_given_as_options_move_into_the_schema": (
            "primary-key",
            "partition",
        ),
        "test_what_does_not_go_together_is_refused_with_the_name_the_reason_and_the_remedy": (
            "type",
            "path",
            "auto-create",
        ),
        "test_with_nullable_primary_keys_they_all_take_nulls": ("primary-key.nullable",),
    },
    "tests/storage/system_tables/test_audit_log.py": {
        "test_the_audit_log_has_sequence_numbers_on_request": ("table-read.sequence-number.enabled",),
    },
    "tests/storage/maintenance/test_automatic_tags.py": {
        "test_which_snapshot_gets_which_tag": (
            "tag.automatic-creation",
            "tag.automatic-completion",
            "tag.creation-delay",
            "tag.num-retained-max",
            "sink.watermark-time-zone",
        ),
        "test_by_the_wall_clock_nothing_is_looked_at_before_a_period_is_over": ("sink.process-time-zone",),
        "test_a_tag_has_the_tables_retention_and_goes_after_it": ("tag.default-time-retained",),
        "test_tags_stay_where_their_time_does_not_count": ("tag.time-expire-enabled",),
        "test_batch_tags_may_have_a_name_of_their_own_and_a_number": ("tag.batch.customized-name",),
        "test_a_success_file_stands_beside_the_tag_and_goes_with_it": ("tag.create-success-file",),
    },
    "tests/storage/maintenance/test_partition_expiry.py": {
        "test_partitions_go_by_the_time_that_their_values_name": (
            "partition.expiration-time",
            "partition.expiration-max-num",
            "partition.timestamp-formatter",
            "partition.timestamp-pattern",
        ),
        "test_partitions_go_by_when_they_were_last_written": ("partition.expiration-strategy",),
        "test_they_go_in_batches_of_one_commit_each": ("partition.expiration-batch-size",),
        "test_a_writer_drops_old_partitions_when_it_closes": (
            "partition.expiration-check-interval",
            "end-input.check-partition-expire",
        ),
        "test_a_compaction_job_drops_them_and_may_leave_them_out": ("compaction.skip-expired-partitions",),
        "test_rows_of_a_partition_that_names_no_time_are_refused_where_the_table_is_strict": (
            "partition.timestamp-format.strict",
        ),
        "test_empty_directories_go_with_the_snapshots_where_that_is_asked_for": ("snapshot.clean-empty-directories",),
        "test_partitions_are_marked_as_done_by_hand_and_after_batch_writes": ("partition.end-input-to-done",),
    },
    "tests/storage/read/test_auto_tags.py": {
        "test_the_name_of_an_automatic_tag_says_its_time": (
            "tag.creation-period",
            "tag.period-formatter",
            "tag.creation-period-duration",
        ),
    },
    "tests/storage/read/changes/test_overwrites.py": {
        "test_overwritten_rows_are_changes_where_the_table_says_so": (
            "streaming-read-overwrite",
            "streaming-read-append-overwrite",
        ),
    },
    "tests/storage/read/stream/test_consumer_progress.py": {
        "test_at_least_once_writes_less_often_and_at_the_end": ("consumer.mode",),
    },
    "tests/storage/test_table_model.py": {
        "test_a_table_is_what_its_last_commit_made_it": ("write-buffer-spillable",),
    },
    "tests/storage/write/test_row_converter.py": {
        "test_rowkind_field_decides_the_kind_and_stays_a_column": ("rowkind.field",),
    },
    "tests/storage/read/evolution/test_blob_columns.py": {
        "test_descriptors_name_the_bytes_that_a_read_gives": ("blob-as-descriptor",),
    },
    "tests/interop/test_row_id_writes.py": {
        "test_rows_ids_and_blobs_that_we_write_are_read_by_java_and_pypaimon": (
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
        "test_both_forms_may_lie_in_one_file_and_a_vector_takes_the_form_of_the_table_when_it_changes": (
            "deletion-vectors.bitmap64",
        ),
        "test_files_of_a_table_without_buckets_roll_and_only_those_with_a_changed_vector_are_replaced": (
            "deletion-vector.index-file.target-size",
        ),
    },
    "tests/tidelake/test_overwrite.py": {
        "test_an_overwrite_replaces": ("dynamic-partition-overwrite",),
    },
    "tests/tidelake/test_reading_options.py": {
        "test_a_consumer_named_by_the_options_goes_on_where_it_was": (
            "consumer-id",
            "consumer.ignore-progress",
        ),
        "test_a_dynamic_option_opens_a_branch": ("branch",),
        "test_each_read_is_of_the_bucket_that_the_options_name": ("scan.bucket",),
        "test_a_follow_ends_before_the_first_snapshot_beyond_the_watermark": ("scan.bounded.watermark",),
        "test_a_scan_reads_only_files_that_were_made_since": ("scan.file-creation-time-millis",),
        "test_following_from_a_time_between_snapshots_that_are_known_begins_with_changes": (
            "scan.creation-time-millis",
        ),
        "test_a_follower_waits_no_longer_than_the_table_says": ("continuous.discovery-interval",),
        "test_a_scan_reads_as_of_the_time_that_its_options_say": (
            "scan.timestamp-millis",
            "scan.timestamp",
        ),
        "test_a_scan_reads_where_its_options_say": (
            "scan.snapshot-id",
            "scan.mode",
            "scan.tag-name",
            "scan.version",
            "scan.watermark",
            "incremental-between-timestamp",
            "incremental-between-scan-mode",
            "incremental-to-auto-tag",
        ),
        "test_a_snapshot_is_followed_once_it_is_as_old_as_the_delay": ("streaming.read.snapshot.delay",),
        "test_changes_are_those_between_the_snapshots_that_the_options_name": (
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
