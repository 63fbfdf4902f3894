"""Builds the parts that handle failing records, from the configuration."""

from __future__ import annotations

from collections.abc import Collection

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.ingest.clock import Clock
from tidelake.ingest.dead_letter_table import DeadLetterTable, TableDeadLetters
from tidelake.ingest.dead_letters import DeadLetters
from tidelake.ingest.pipeline.building.parts import FailingRecords
from tidelake.ingest.pipeline.error_policy import ErrorPolicy
from tidelake.ingest.pipeline.pending_batches import PendingBatches
from tidelake.ingest.settings import Config
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.fileio import FileIO, open_retrying_file_io


def build_failing_records(
    config: Config, skip: Collection[tuple[TopicPartition, int]], catalog: Catalog, io: FileIO | None, clock: Clock
) -> FailingRecords:
    """Build the parts that handle failing records.

    skip: records that an operator decided to skip.
    """
    errors = config.errors
    return FailingRecords(
        ErrorPolicy(errors.tolerance, skip),
        _dead_letters(config, catalog, io, clock),
        PendingBatches(errors.waiting_ms_max, errors.waiting_bytes_max),
    )


def _dead_letters(config: Config, catalog: Catalog, io: FileIO | None, clock: Clock) -> DeadLetters:
    logs_reasons = config.errors.log_include_messages
    if config.dead_letters_table is not None:
        table = DeadLetterTable(catalog, config.dead_letters_table, config.pipeline)
        if table.exists:
            table.open()
        return TableDeadLetters(table, config.pipeline, clock, logs_reasons=logs_reasons)
    folder = config.dead_letters
    io = io or open_retrying_file_io(folder, config.warehouse_options)
    return DeadLetters(io, folder, clock, logs_reasons=logs_reasons)
