"""The progress file of a pipeline on Spark: how far its query has read partitions for tables without new rows.

A table without rows in a batch gets no snapshot. So its snapshots alone don't say that it has all records of the batch,
and a query with another checkpoint directory could not begin behind them. The file says it:

    {"version": 1, "query": "5f0c…", "batch": 41, "began": <a position>, "before": <a position>,
     "reached": <a position>,
     "tables": {"shop.orders": {"created": 1795196040376, "snapshot": 17, "list": "manifest-list-…", "routing": {…}}}}

An entry means: "the table's newest snapshot with a position is 17, and no record below `reached` is missing in it, nor
one below `began` in a partition that the query has not read". (All tables had been read up to `began` when the query
started.) If anybody has written a position to the table since, or the table was rolled back, the entry doesn't apply.
So an old file is never wrong, only useless. The file is written after each batch, when all tables have it. If Spark
repeats that batch, because the driver ended before Spark's own commit, tables without rows are where they were
`before`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from tidelake.checkpoint.idle_progress import ProgressEntry
from tidelake.checkpoint.offsets import (
    OffsetRange,
    SourcePosition,
    TopicPartition,
    position_from_text,
    position_to_text,
)
from tidelake.errors import CorruptFile, TidelakeError, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.base import FileIO

_VERSION: Final = 1

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """The contents of the file.

    query: the id of the query that wrote it.
    batch: the newest batch that is in all tables.
    began: where the query began to read partitions that tables had.
    before: next offset of each partition before this batch.
    reached: next offset of each partition that the query has read.
    tables: tables without a snapshot of the batch.
    """

    query: str = ""
    batch: int = -1
    began: Mapping[TopicPartition, int] = field(default_factory=dict)
    reached: Mapping[TopicPartition, int] = field(default_factory=dict)
    tables: Mapping[str, ProgressEntry] = field(default_factory=dict)
    before: Mapping[TopicPartition, int] = field(default_factory=dict)

    def read_before(self, batch: int) -> Mapping[TopicPartition, int]:
        """Return how far the query has read partitions before this batch, which may be one that is repeated."""
        return self.before if batch == self.batch else self.reached

    def reached_for(self, table: str, state: ProgressEntry) -> Mapping[TopicPartition, int]:
        """Return how far partitions were read for a table; empty if the file doesn't apply to its state."""
        return {**self.began, **self.reached} if self.tables.get(table) == state else {}

    def to_text(self) -> str:
        members = {
            "version": _VERSION,
            "query": self.query,
            "batch": self.batch,
            "began": json.loads(_position_text(self.began)),
            "before": json.loads(_position_text(self.before)),
            "reached": json.loads(_position_text(self.reached)),
            "tables": {name: entry.to_members() for name, entry in sorted(self.tables.items())},
        }
        return json.dumps(members, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_text(cls, data: bytes, where: str) -> QueryProgress:
        """Return the progress that `to_text` wrote.

        Raises CorruptFile for other text, UnsupportedFeature for a version that this release doesn't know.
        """
        try:
            members = json.loads(data)
            if (version := members["version"]) != _VERSION:
                raise UnsupportedFeature(
                    f"progress version {version} in {where}",
                    f"this release reads only version {_VERSION}",
                    "Delete the file; a query with a new checkpoint directory then begins where the tables end",
                )
            began, reached = (
                position_from_text(json.dumps(members[name]), where).ends for name in ("began", "reached")
            )
            tables = {str(name): ProgressEntry.from_members(of) for name, of in members["tables"].items()}
            before = members.get("before", members["reached"])  # files of earlier versions lack it
            ends = position_from_text(json.dumps(before), where).ends
            return cls(str(members["query"]), int(members["batch"]), began, reached, tables, ends)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(where, "the progress of a pipeline on Spark", f"{data[:200]!r} ({error})") from error


class QueryProgressFile:
    """The progress file of a pipeline. Methods block.

    io: of the warehouse.
    """

    def __init__(self, io: FileIO, warehouse: str, pipeline: str) -> None:
        self._io = io
        self._path = f"{warehouse.rstrip('/')}/{quote(pipeline, safe='')}.spark-progress"

    def read(self) -> QueryProgress:
        """Return the progress. It is empty if the file is missing or invalid."""
        try:
            return QueryProgress.from_text(self._io.read(self._path), self._path)
        except FileNotFoundError:
            return QueryProgress()
        except TidelakeError as error:
            _log.warning("the progress of an earlier query is ignored", error=str(error))
            return QueryProgress()

    def write(self, progress: QueryProgress) -> None:
        """Replace the file atomically. Errors are logged: the file only matters for new checkpoint directories."""
        try:
            self._io.write(self._path, progress.to_text().encode())
        except (OSError, TidelakeError) as error:
            _log.warning("the progress of the query was not written", path=self._path, error=str(error))


def _position_text(ends: Mapping[TopicPartition, int]) -> str:
    return position_to_text(SourcePosition(ranges={p: OffsetRange(end, end) for p, end in ends.items()}))
