"""Empties a table and its history: only its schemas, options and one empty snapshot are kept.

Source: Java `FileStoreTable.purgeFiles`.
"""

from __future__ import annotations

from typing import Final

from tidelake.storage.commit.expire.expire_now import expire_now
from tidelake.storage.commit.expire.retention import retention_of
from tidelake.storage.commit.table_commit import TableCommit, new_commit_user
from tidelake.storage.maintenance.branch_changes import delete_branch
from tidelake.storage.maintenance.orphans import OrphanCleaning, clean_orphans
from tidelake.storage.maintenance.tag_changes import delete_tag
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.consumers import Consumer, consumer_names
from tidelake.storage.model.table import TableContext

_ALL: Final = 2**31


def purge(context: TableContext) -> OrphanCleaning:
    """Delete all rows and the history. Stop writers and readers first. If it is interrupted, call it again.

    Steps:
    1. Delete branches, tags and consumers.
    2. Delete the rows, with an OVERWRITE.
    3. Expire all other snapshots, and delete changelogs.
    4. Delete all orphan files, of any age.

    Returns what the last step deleted.
    """
    context.identity.check_before_change()
    for branch in branch_names(context.io, context.paths):
        if branch != context.branch:
            delete_branch(context, branch)
    for tag in context.tags.names():
        delete_tag(context, tag)
    for consumer in consumer_names(context.io, context.paths):
        Consumer(context.io, context.paths, consumer).forget()
    if context.snapshots.latest_id() is None:
        return clean_orphans(context, older_than_ms=0)
    TableCommit(context, new_commit_user(context.options)).truncate()
    expire_now(context, retention=retention_of(context.options, 1, 1, 0, limit=_ALL))
    changelogs = context.changelogs
    context.io.delete_all([context.paths.changelog(changelog_id) for changelog_id in changelogs.ids()])
    context.io.delete_all([context.paths.changelog_latest_hint, context.paths.changelog_earliest_hint])
    return clean_orphans(context, older_than_ms=0)
