"""The messages that writers pass to the committer.

Source: Java `table/sink/CommitMessageImpl.java`, `manifest/ManifestCommittable.java`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidelake.storage.base.errors import BadInput
from tidelake.storage.base.pickled_values import pickles_as_values
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.index_file import IndexFileMeta


@pickles_as_values
@dataclass(frozen=True, slots=True)
class CommitMessage:
    """Files of one bucket, complete and durable, not visible yet. They can be pickled.

    partition: serialized BinaryRow.
    total_buckets: None: the table's option `bucket`.
    new_files: files that were written.
    deleted_files: files that they replace, by name.
    changelog_files: the changelog of the written files.
    new_index_files: files of the bucket's index that were written.
    deleted_index_files: index files that they replace.
    compact_*: the files that a compaction read and wrote, its changelog and index files, and the reason for it. They
        become a second snapshot.
    compact_tombstones, known_files: see `tidelake.storage.commit.commit_changes`.
    base_hash_index: for dynamic buckets: the index files of the partition that the buckets were chosen with. None: not
        checked.
    base_key_index: for tables whose keys move between partitions: the snapshot whose keys the index had (0: an empty
        table). None: not tracked.
    base_row_ids: for columns that were written for rows of older files: the snapshot that had these rows.
    base_snapshot_id: the snapshot whose sequence numbers new_files continue; None if the table had no snapshot.
    """

    partition: bytes
    bucket: int
    total_buckets: int | None = None
    new_files: tuple[DataFileMeta, ...] = ()
    deleted_files: tuple[DataFileMeta, ...] = ()
    changelog_files: tuple[DataFileMeta, ...] = ()
    compact_before: tuple[DataFileMeta, ...] = ()
    compact_after: tuple[DataFileMeta, ...] = ()
    compact_changelog: tuple[DataFileMeta, ...] = ()
    new_index_files: tuple[IndexFileMeta, ...] = ()
    deleted_index_files: tuple[IndexFileMeta, ...] = ()
    compact_new_index_files: tuple[IndexFileMeta, ...] = ()
    compact_deleted_index_files: tuple[IndexFileMeta, ...] = ()
    base_hash_index: frozenset[str] | None = None
    base_key_index: int | None = None
    base_row_ids: int | None = None
    base_snapshot_id: int | None = None
    compact_reason: str = ""
    compact_tombstones: tuple[DataFileMeta, ...] = ()
    known_files: frozenset[str] = frozenset()

    def without_compaction(self) -> CommitMessage:
        """Returns the message with only the written files."""
        return replace(
            self,
            compact_before=(),
            compact_after=(),
            compact_changelog=(),
            compact_new_index_files=(),
            compact_deleted_index_files=(),
            compact_reason="",
            compact_tombstones=(),
            known_files=frozenset(),
        )

    def only_compaction(self) -> CommitMessage:
        """Returns the message without the written files; the files that they replace are still named."""
        return replace(self, new_files=(), changelog_files=(), new_index_files=())


def reasons_text(reasons: Iterable[str]) -> str:
    """Returns why compactions were picked, the most frequent reason first: `size ratio (3), full compaction`."""
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
