"""What a batch of Spark is written to: a table, how its rows are read, and what becomes of those that can't be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.compaction.fixed_bucket_batch import Rescale
from tidelake.ingest.dead_letter_table import DeadLetterTable
from tidelake.ingest.spark.batch_rows import BatchInput, RawRecords
from tidelake.storage.base.logs import get_logger
from tidelake.storage.catalog.base import Catalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.publisher import Guard
from tidelake.storage.fileio import open_file_io

_log = get_logger(__name__)


@dataclass(frozen=True)
class Overwrite:
    """The rows that a write replaces.

    partition: replaces all rows of partitions that match it. None: see `is_dynamic`.
    is_dynamic: replaces the partitions to which rows are written; otherwise the whole table.
    properties: properties of the snapshot.
    """

    partition: Mapping[str, Any] | None = None
    is_dynamic: bool = False
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class SparkDeadLetterTable:
    """A table for dead letters, in the sink's warehouse.

    pipeline: the pipeline's name in its rows.
    """

    name: str
    pipeline: str

    def keep(self, catalog: Catalog, lines: Sequence[str]) -> None:
        """Append dead letters. Rows that exist already, from a replayed batch, are left out."""
        count = DeadLetterTable(catalog, self.name, self.pipeline).append_lines(lines)
        _log.warning("records became dead letters", table=self.name, count=count, there_already=len(lines) - count)


@dataclass(frozen=True)
class BatchTarget:
    """A table that batches are written to, and how. `sink` describes most of it.

    dead_letter_table: the table of dead letters, instead of a location.
    guard: for a write that is no batch of a query, and is never repeated: see `Publisher`.
    overwrite: what such a write replaces; `input.replaces` must be set, too.
    reached: how far a pipeline has read partitions for this table, according to its progress file. A table without
        rows in these records has no snapshot that says it.
    shared_with: commit users that write other records of the same topics to the table; their positions don't count.
    read: how far the query has read partitions before the batch, with rows for this table or without.
    properties: properties of each snapshot.
    rescale: for such a write to a table with `bucket = -2`: rows get buckets at once. None: rows stay staged.
    """

    table: str
    warehouse: str
    input: BatchInput
    commit_user: str | None = None
    reread: bool = False
    accept_gap: bool = False
    dead_letters: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # may hold secrets
    dead_letter_table: SparkDeadLetterTable | None = None
    guard: Guard | None = None
    overwrite: Overwrite | None = None
    rescale: Rescale | None = None
    reached: Mapping[TopicPartition, int] = field(default_factory=dict, repr=False)
    shared_with: frozenset[str] = frozenset()
    read: Mapping[TopicPartition, int] = field(default_factory=dict, repr=False)
    properties: Mapping[str, str] = field(default_factory=dict)

    @property
    def topics(self) -> Sequence[str]:
        return self.input.topics if isinstance(self.input, RawRecords) else ("*",)

    def keep_dead_letters(self, user: str, batch_id: int, lines: Sequence[str]) -> None:
        """Make dead letters durable before the snapshot whose position passes them. A replayed batch finds its file."""
        if lines and self.dead_letter_table is not None:
            self.dead_letter_table.keep(open_catalog(self.warehouse, self.options), lines)
        elif lines and self.dead_letters is not None:
            path = f"{self.dead_letters.rstrip('/')}/{quote(user, safe='')}-{batch_id}.jsonl"
            text = "".join(line + "\n" for line in lines)
            open_file_io(path, self.options).create_if_absent(path, text.encode())
            _log.warning(
                "records became dead letters", table=self.table, batch_id=batch_id, count=len(lines), path=path
            )
