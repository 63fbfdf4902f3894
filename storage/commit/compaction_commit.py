"""Publishes the compaction of a commit, which is a snapshot of its own.

It may be lost: then its files are deleted, and the rows, which are in the table already, are compacted again later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tidelake.errors import CommitConflict, CommitOutcomeUnknown, WriterFenced
from tidelake.storage.base.logs import get_logger
from tidelake.storage.commit.commit_changes import CommitChanges, commit_changes
from tidelake.storage.commit.commit_message import CommitMessage, Committable, reasons_text
from tidelake.storage.commit.commit_request import CommitRequest, CommitResult, always
from tidelake.storage.commit.manifests.manifest_store import ManifestStore
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries_of
from tidelake.storage.commit.publisher import Publisher
from tidelake.storage.commit.tombstones import Tombstones
from tidelake.storage.commit.uncommitted_files import delete_uncommitted_files
from tidelake.storage.model.bucketing import Bucketing
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)

OnLostCompaction = Callable[[Sequence[CommitMessage]], None]


@dataclass(frozen=True, slots=True)
class CompactionCommit:
    """The compactions of one commit user.

    on_lost: see `TableCommit`
    """

    context: TableContext
    publisher: Publisher
    on_lost: OnLostCompaction

    def request(self, committable: Committable, compacted: CommitChanges, *, is_first: bool) -> CommitRequest:
        """Return the request for the compaction of a commit.

        is_first: the commit has no rows.
        """
        changes = self._with_needed_tombstones(compacted, committable.messages)
        return CommitRequest(committable, changes, is_first=is_first)

    def publish(self, request: CommitRequest, rows: CommitResult | None) -> CommitResult:
        """Publish the compaction of a commit.

        rows: the result of publishing the rows of the same commit, if there were any. Then a conflict is no error, and
            this result is returned.
        """
        result = self.publisher.publish(request) if rows is None else self._publish_after(rows, request)
        if result is not rows and not result.is_already_committed:
            self._delete_unneeded_tombstones(request.committable.messages, result.snapshot)
        return result

    def publish_all(self, committable: Committable, compact: Callable[[], Sequence[CommitMessage]]) -> int | None:
        """See `TableCommit.compact_level_0`."""
        published: int | None = None
        try:
            for _ in range(1 + self.context.options.commit_max_retries):
                if not (messages := compact()):
                    break
                published = self._publish_more(replace(committable, messages=tuple(messages))) or published
        except Exception as error:
            _log.warning("compaction is left to the next commit", table=self.context.name, reason=str(error))
        return published

    def _publish_more(self, committable: Committable) -> int | None:
        """Publish another compaction under an identifier that is committed. Returns None if it was lost."""
        messages = committable.messages
        (compacted,) = self._changes(messages)
        changes = self._with_needed_tombstones(compacted, messages)
        try:
            result = self.publisher.publish(
                CommitRequest(with_compact_reason(committable), changes, is_first=False, is_more=True)
            )
        except CommitConflict as e:
            self._discard(messages, e)
            return None
        self._delete_unneeded_tombstones(messages, result.snapshot)
        return result.snapshot.id

    def _publish_after(self, rows: CommitResult, request: CommitRequest) -> CommitResult:
        try:
            return self.publisher.publish(request)
        except CommitConflict as e:
            self._discard(request.committable.messages, e)
            return rows
        except (CommitOutcomeUnknown, WriterFenced):
            raise
        except Exception as e:
            raise CommitOutcomeUnknown(
                f"{self.context.name}: the rows of {rows.snapshot.commit_user!r}, identifier "
                f"{rows.snapshot.commit_identifier}, are in the table, in snapshot {rows.snapshot.id}, but the "
                f"compaction of the same commit is not ({e}). Don't write these rows again"
            ) from e

    def _discard(self, messages: Sequence[CommitMessage], reason: CommitConflict) -> None:
        _log.warning("compaction discarded", table=self.context.name, reason=str(reason))
        self.on_lost(messages)
        try:
            delete_uncommitted_files(self.context, [message.only_compaction() for message in messages])
        except Exception as error:  # the commit still succeeded: its rows are in the table
            _log.warning("its files stay, for the orphan cleaner", table=self.context.name, error=str(error))

    def _with_needed_tombstones(
        self, compacted: CommitChanges, messages: Sequence[CommitMessage]
    ) -> Callable[[Snapshot | None], CommitChanges]:
        tombstones = Tombstones(messages)
        if not tombstones:
            return always(compacted)

        def changes(base: Snapshot | None) -> CommitChanges:
            manifests = self.context.shared(ManifestStore)
            live = live_entries_of(manifests, base, tombstones.partitions, self.context.name)
            added = [entry for change in self._changes(tombstones.needed(live)) for entry in change.entries]
            return replace(compacted, entries=[*compacted.entries, *added])

        return changes

    def _delete_unneeded_tombstones(self, messages: Sequence[CommitMessage], snapshot: Snapshot) -> None:
        """Delete tombstones that the published compaction did not need. Raises nothing."""
        tombstones = Tombstones(messages)
        if not tombstones:
            return
        try:
            published = {entry.file.file_name for entry in delta_entries(self.context, snapshot)}
            needed, unneeded = tombstones.split(published)
            self.on_lost(needed)
            delete_uncommitted_files(self.context, unneeded)
        except Exception as error:
            _log.warning("files of deletes stay, for the orphan cleaner", table=self.context.name, error=str(error))

    def _changes(self, messages: Sequence[CommitMessage]) -> list[CommitChanges]:
        total_buckets = Bucketing.of(self.context.schema, self.context.options).total_buckets
        return commit_changes(messages, total_buckets, ignore_empty=True)


def with_compact_reason(committable: Committable) -> Committable:
    """Add to the compaction's snapshot the reason why it was picked."""
    reasons = [message.increment.compacted.reason for message in committable.messages]
    text = reasons_text(reason for reason in reasons if reason)
    if not text:
        return committable
    return replace(committable, properties={COMPACTION_REASON_PROPERTY: text, **committable.properties})
