"""The history of a table: snapshots, tags, branches, rollbacks, orphan files."""

from __future__ import annotations

from datetime import datetime, timedelta

from tidelake.storage.base.arguments import check_whole_number, checked
from tidelake.storage.base.errors import BadInput
from tidelake.storage.maintenance import branch_changes, tag_changes
from tidelake.storage.maintenance.branch_merge import merge_branch
from tidelake.storage.maintenance.orphans import OrphanCleaning, clean_orphans
from tidelake.storage.maintenance.rollback import LaterStates, at_watermark, later_states, roll_back
from tidelake.storage.maintenance.verify.inspection import ORPHAN_AGE_MS
from tidelake.storage.model.format import DEFAULT_BRANCH
from tidelake.storage.model.snapshots.branches import branch_names
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext


class TableHistory:
    _context: TableContext

    def _check_changeable(self, what: str) -> None:
        """Raise BadInput for a read-only table.

        what: the refused action, such as "tagged"
        """

    def snapshots(self) -> list[Snapshot]:
        """Return all snapshots, oldest first."""
        return self._context.snapshots.all()

    # ------------------------------------------------------------ tags

    def tags(self) -> dict[str, Snapshot]:
        return self._context.tags.all()

    @checked
    def create_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        """Create a tag: a named snapshot that does not expire.

        snapshot: its id; None is the latest
        retain: `expire_tags` deletes the tag after this time; None is never

        Raises BadInput if the name exists, SnapshotExpired if the snapshot is just expiring.
        """
        self._check_changeable("tagged")
        return tag_changes.create_tag(self._context, name, snapshot, retain)

    @checked
    def replace_tag(self, name: str, *, snapshot: int | None = None, retain: timedelta | None = None) -> Snapshot:
        """Move a tag to another snapshot, and delete files that only the old one needed. See `create_tag`."""
        self._check_changeable("tagged")
        return tag_changes.replace_tag(self._context, name, snapshot, retain)

    @checked
    def rename_tag(self, name: str, new_name: str) -> None:
        self._check_changeable("tagged")
        tag_changes.rename_tag(self._context, name, new_name)

    @checked
    def delete_tag(self, name: str) -> int:
        """Delete a tag and the files that only it references. Returns the number of these files."""
        self._check_changeable("tagged")
        plan = tag_changes.delete_tag(self._context, name)
        return plan.data_files + plan.metadata_files

    @checked
    def expire_tags(self, *, older_than: datetime | None = None, dry_run: bool = False) -> list[str]:
        """Delete tags whose retention has ended. Returns their names.

        older_than: also delete tags without retention that are older than this local time
        """
        self._check_changeable("tagged")
        names = [t.name for t in tag_changes.overdue_tags(self._context, older_than, now=datetime.now())]
        for name in names if not dry_run else ():
            tag_changes.delete_tag(self._context, name)
        return names

    # ------------------------------------------------------------ branches

    def branches(self) -> list[str]:
        """Return the names of branches, without `main`. `catalog.table("db.t$branch_NAME")` opens one."""
        return branch_names(self._context.io, self._context.paths)

    @checked
    def create_branch(self, name: str, *, tag: str | None = None, snapshot: int | None = None) -> None:
        """Create a branch from a tag or a snapshot, or an empty one."""
        self._check_changeable("branched")
        branch_changes.create_branch(self._context, name, tag=tag, snapshot_id=snapshot)

    @checked
    def delete_branch(self, name: str) -> None:
        """Delete a branch, its snapshots and tags. Files that only it had become orphans (`clean_orphans`)."""
        self._check_changeable("changed")
        branch_changes.delete_branch(self._context, name)

    @checked
    def rename_branch(self, name: str, new_name: str) -> None:
        """Rename a branch. Stop its writers and readers first."""
        self._check_changeable("changed")
        branch_changes.rename_branch(self._context, name, new_name)

    @checked
    def fast_forward(self, branch: str) -> Snapshot:
        """Replace the main branch by this branch: its snapshots and tags since the branch's start are replaced.

        Stop writers first. If interrupted, call it again. Returns the newest snapshot.
        """
        self._check_changeable("changed")
        return branch_changes.fast_forward(self._context, branch)

    # ------------------------------------------------------------ rollback

    @checked
    def merge_branch(self, branch: str) -> int | None:
        """Append the rows that another branch (also "main") has added since the branch was created.

        Append tables only; both sides may only have appended rows. Returns the snapshot's id; None if there is nothing
        new.
        """
        self._check_changeable("merged into")
        context = self._context
        if branch not in (DEFAULT_BRANCH, *self.branches()):
            raise BadInput(
                f"{context.name} has no branch {branch!r}; its branches are: {', '.join(self.branches()) or 'none'}"
            )
        return merge_branch(context, context.of_branch(branch))

    @checked
    def rollback(
        self,
        *,
        snapshot: int | None = None,
        tag: str | None = None,
        as_of: datetime | int | None = None,
        watermark: int | None = None,
        dry_run: bool = False,
    ) -> LaterStates:
        """Roll the table back to an earlier snapshot. Give one of the arguments.

        snapshot: id of the snapshot
        tag: name of a tag
        as_of: the last snapshot at this time: a datetime, or epoch milliseconds
        watermark: the last snapshot with this watermark or an earlier one

        Deletes later snapshots, changelogs and tags, and returns them. Their files become orphans. Stop writers and
        readers first: snapshot ids are reused.
        """
        self._check_changeable("rolled back")
        if sum(selector is not None for selector in (snapshot, tag, as_of, watermark)) != 1:
            raise BadInput("rollback() takes one of snapshot, tag, as_of and watermark")
        target = self._target(snapshot, tag, as_of, watermark)
        if dry_run:
            return later_states(self._context, target.id)
        return roll_back(self._context, target)

    def _target(
        self, snapshot: int | None, tag: str | None, as_of: datetime | int | None, watermark: int | None
    ) -> Snapshot:
        if tag is not None:
            return self._context.tags.get(tag)
        if snapshot is not None:
            check_whole_number("rollback(snapshot=…)", snapshot, at_least=1)
            return tag_changes.snapshot_to_keep(self._context, snapshot)
        if watermark is not None:
            return at_watermark(self._context, watermark)
        time_ms = int(as_of.timestamp() * 1000) if isinstance(as_of, datetime) else as_of
        found = None if time_ms is None else self._context.snapshots.as_of(time_ms)
        if found is None:
            raise BadInput(f"{self._context.name} has no snapshot that was committed at {as_of} or earlier")
        return found

    # ------------------------------------------------------------ orphans

    @checked
    def clean_orphans(self, *, older_than_ms: int = ORPHAN_AGE_MS, dry_run: bool = False) -> OrphanCleaning:
        """Delete orphan files: files that no snapshot, tag or branch references, and that are older than this (a day).

        Writers can continue, as long as no commit takes longer than that.
        """
        self._check_changeable("cleaned")
        return clean_orphans(self._context, older_than_ms=older_than_ms, dry_run=dry_run)
