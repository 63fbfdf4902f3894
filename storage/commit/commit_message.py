"""The messages that writers pass to the committer.

Source: Java `table/sink/CommitMessageImpl.java`, `manifest/ManifestCommittable.java`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelake.errors import BadInput
from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.commit.commit_increment import CommitIncrement
from tidelake.storage.model.bucket_id import BucketId


@pickles_as_values
@dataclass(frozen=True, slots=True)
class CommitBase:
    """The state of the table that a message was computed from. What is None is not checked.

    snapshot_id: the snapshot whose sequence numbers the new files continue; None if the table had no snapshot.
    total_buckets: the number of buckets that the rows were placed into; None: the table's option `bucket`.
    hash_index: for dynamic buckets: the index files of the partition that the buckets were chosen with.
    key_index: for tables whose keys move between partitions: the snapshot whose keys the index had (0: an empty table).
    row_ids: for columns that were written for rows of older files: the snapshot that had these rows.
    """

    snapshot_id: int | None = None
    total_buckets: int | None = None
    hash_index: frozenset[str] | None = None
    key_index: int | None = None
    row_ids: int | None = None


@pickles_as_values
@dataclass(frozen=True, slots=True)
class CommitMessage:
    """The files of one bucket, complete and durable, not visible yet, and the state that they were computed from."""

    bucket: BucketId
    increment: CommitIncrement = field(default_factory=CommitIncrement)
    base: CommitBase = field(default_factory=CommitBase)

    @property
    def partition(self) -> bytes:
        return self.bucket.partition

    def only_compaction(self) -> CommitMessage:
        """Return the message without the written files; the files that they replace are still named."""
        return replace(self, increment=self.increment.only_compaction())


def reasons_text(reasons: Iterable[str]) -> str:
    """Return why compactions were picked, the most frequent reason first: `size ratio (3), full compaction`."""
    counts = Counter(reasons).most_common()
    return ", ".join(reason if count == 1 else f"{reason} ({count})" for reason, count in counts)


@dataclass(frozen=True, slots=True)
class Committable:
    """The messages and properties of one commit identifier.

    identifier: the number of the commit, rising for each user (BATCH_COMMIT_IDENTIFIER for one-off commits).
    watermark: epoch milliseconds.
    properties: stored in the snapshot.

    Raises BadInput for values that a snapshot can't hold.
    """

    identifier: int
    messages: Sequence[CommitMessage] = ()
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _check_number("identifier", self.identifier)
        if self.watermark is not None:
            _check_number("watermark", self.watermark)
        for key, value in self.properties.items():
            _check_text(key, value)


def _check_number(name: str, number: object) -> None:
    if not isinstance(number, int) or not -(2**63) <= number < 2**63:
        raise BadInput(f"the {name} of a commit must be a 64-bit integer, not {number!r}")


def _check_text(key: object, value: object) -> None:
    if not isinstance(key, str) or not isinstance(value, str):
        raise BadInput(f"properties of a snapshot must be strings, but {key!r} is {value!r}; write {str(value)!r}")
