"""`tidelake table tag`, `branch` and `rollback`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timedelta

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, duration_ms, noun, positive, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

# ---------------------------------------------------------------- tags


def add_tags(verbs: Commands) -> None:
    tags = noun(verbs, "tag", "tags: named snapshots that do not expire")
    create = table_command(
        tags,
        "create",
        create_tag,
        "create a tag of a snapshot",
        example="tidelake table tag create shop.orders 2026-05 -w lake --retain '365 d'",
    )
    replace = table_command(
        tags,
        "replace",
        replace_tag,
        "move a tag to another snapshot",
        example="tidelake table tag replace shop.orders stable -w lake --snapshot 42",
    )
    for parser in (create, replace):
        parser.add_argument("tag", metavar="TAG")
        parser.add_argument("--snapshot", type=positive, metavar="ID", help="default: the latest")
        parser.add_argument(
            "--retain", metavar="DURATION", help="`tag expire` deletes it after this time; default: never"
        )
    rename = table_command(
        tags, "rename", rename_tag, "rename a tag", example="tidelake table tag rename shop.orders may 2026-05 -w lake"
    )
    rename.add_argument("tag", metavar="TAG")
    rename.add_argument("new_name", metavar="NEW")
    delete = table_command(
        tags,
        "delete",
        delete_tag,
        "delete a tag and the files that only it references",
        example="tidelake table tag delete shop.orders 2026-05 -w lake --dry-run",
    )
    delete.add_argument("tag", metavar="TAG")
    add_dry_run(delete)
    expire = table_command(
        tags,
        "expire",
        expire_tags,
        "delete tags whose retention has ended",
        example="tidelake table tag expire shop.orders -w lake --dry-run",
    )
    expire.add_argument(
        "--older-than", metavar="TIME", help="also delete tags without retention that are older than TIME"
    )
    add_dry_run(expire)


def create_tag(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, snapshot: int | None, retain: str | None
) -> None:
    made = catalog.open().table(name).create_tag(tag, snapshot=snapshot, retain=_retention(retain))
    out.result({"tag": tag, "snapshot": made.id}, f"tag {tag} keeps snapshot {made.id} of {name}")


def replace_tag(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, snapshot: int | None, retain: str | None
) -> None:
    made = catalog.open().table(name).replace_tag(tag, snapshot=snapshot, retain=_retention(retain))
    out.result({"tag": tag, "snapshot": made.id}, f"tag {tag} now keeps snapshot {made.id} of {name}")


def rename_tag(out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, new_name: str) -> None:
    catalog.open().table(name).rename_tag(tag, new_name)
    out.result({"tag": new_name, "was": tag}, f"tag {tag} of {name} is now called {new_name}")


def delete_tag(out: CommandOutput, *, name: str, catalog: CatalogAddress, tag: str, dry_run: bool) -> None:
    table = catalog.open().table(name)
    if dry_run:
        tags = table.tags()
        if tag not in tags:
            raise BadInput(f"{name} has no tag {tag!r}; its tags are: {', '.join(tags) or 'none'}")
        kept = table.context.snapshots.exists(tags[tag].id)
        files = "without files: the snapshot exists" if kept else "with the files that only it references"
        out.result({"tag": tag, "files": not kept}, f"tag {tag} of snapshot {tags[tag].id} would be deleted, {files}")
        return
    files_gone = table.delete_tag(tag)
    out.result({"deleted": tag, "files": files_gone}, f"tag {tag} of {name} was deleted, with {files_gone:,} files")


def expire_tags(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, older_than: str | None, dry_run: bool
) -> None:
    before = None if older_than is None else _time("--older-than", older_than).astimezone().replace(tzinfo=None)
    names = catalog.open().table(name).expire_tags(older_than=before, dry_run=dry_run)
    shown = ", ".join(names) or "none"
    out.result({"expired": names}, f"tags of {name} that {'would be' if dry_run else 'were'} deleted: {shown}")


def _retention(text: str | None) -> timedelta | None:
    return None if text is None else timedelta(milliseconds=duration_ms("--retain", text))


# ---------------------------------------------------------------- branches


def add_branches(verbs: Commands) -> None:
    branches = noun(verbs, "branch", "branches of a table")
    create = table_command(
        branches,
        "create",
        create_branch,
        "create a branch from a tag or a snapshot, or empty",
        example="tidelake table branch create shop.orders test -w lake --tag 2026-05",
    )
    create.add_argument("branch", metavar="BRANCH")
    first = create.add_mutually_exclusive_group()
    first.add_argument("--tag", metavar="NAME")
    first.add_argument("--snapshot", type=positive, metavar="ID")
    delete = table_command(
        branches,
        "delete",
        delete_branch,
        "delete a branch, its snapshots and tags",
        example="tidelake table branch delete shop.orders test -w lake --dry-run",
    )
    delete.add_argument("branch", metavar="BRANCH")
    add_dry_run(delete)
    rename = table_command(
        branches,
        "rename",
        rename_branch,
        "rename a branch",
        example="tidelake table branch rename shop.orders test staging -w lake",
    )
    rename.add_argument("branch", metavar="BRANCH")
    rename.add_argument("new_name", metavar="NEW")
    forward = table_command(
        branches,
        "fast-forward",
        fast_forward,
        "replace the main branch by this branch",
        "Snapshots after the branch's start are replaced. Stop writers first. If interrupted, call it again.",
        example="tidelake table branch fast-forward shop.orders test -w lake",
    )
    forward.add_argument("branch", metavar="BRANCH")
    merge = table_command(
        branches,
        "merge",
        merge_branch,
        "append the rows added since the branch was created",
        "Append tables only. Both sides may only have appended rows. Files are shared, not copied.",
        example="tidelake table branch merge shop.events backfill -w lake",
    )
    merge.add_argument("branch", metavar="BRANCH", help="the branch to merge; `main` to update a branch")


def create_branch(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, tag: str | None, snapshot: int | None
) -> None:
    catalog.open().table(name).create_branch(branch, tag=tag, snapshot=snapshot)
    out.result({"branch": branch}, f"created {name}$branch_{branch}")


def delete_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, dry_run: bool) -> None:
    opened = catalog.open()
    if dry_run:
        branch_table = opened.table(f"{name}$branch_{branch}")
        snapshots, tags = len(branch_table.snapshots()), len(branch_table.tags())
        text = f"branch {branch} of {name} would be deleted, with {snapshots} snapshots and {tags} tags"
        out.result({"branch": branch, "snapshots": snapshots, "tags": tags}, text)
        return
    opened.table(name).delete_branch(branch)
    out.result({"deleted": branch}, f"branch {branch} of {name} was deleted")


def rename_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str, new_name: str) -> None:
    catalog.open().table(name).rename_branch(branch, new_name)
    out.result({"branch": new_name, "was": branch}, f"branch {branch} of {name} is now called {new_name}")


def fast_forward(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str) -> None:
    newest = catalog.open().table(name).fast_forward(branch)
    out.result({"snapshot": newest.id}, f"{name} now equals branch {branch}: snapshot {newest.id}")


def merge_branch(out: CommandOutput, *, name: str, catalog: CatalogAddress, branch: str) -> None:
    snapshot_id = catalog.open().table(name).merge_branch(branch)
    what = (
        f"were appended: snapshot {snapshot_id} of {name}" if snapshot_id is not None else f"are already all in {name}"
    )
    out.result({"snapshot": snapshot_id}, f"the rows added on branch {branch} {what}")


# ---------------------------------------------------------------- rollback


def add_rollback(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "rollback",
        rollback,
        "roll a table back to an older snapshot",
        "Deletes later snapshots, changelogs and tags. Their files become orphans. Stop writers and readers first:\n"
        "snapshot ids are reused.",
        example="tidelake table rollback shop.orders -w lake --as-of 2026-05-01T12:00:00Z --dry-run",
    )
    to = parser.add_mutually_exclusive_group(required=True)
    to.add_argument("--snapshot", type=positive, metavar="ID")
    to.add_argument("--tag", metavar="NAME")
    to.add_argument("--as-of", metavar="TIME", help="the last snapshot at this time (2026-05-01T12:00:00Z)")
    to.add_argument(
        "--watermark", type=int, metavar="MS", help="the last snapshot with this watermark or an earlier one"
    )
    add_dry_run(parser)


def rollback(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    snapshot: int | None,
    tag: str | None,
    as_of: str | None,
    watermark: int | None,
    dry_run: bool,
) -> None:
    time = None if as_of is None else _time("--as-of", as_of)
    table = catalog.open().table(name)
    removed = table.rollback(snapshot=snapshot, tag=tag, as_of=time, watermark=watermark, dry_run=dry_run)
    what = [f"{len(removed.snapshots)} snapshots"]
    what += [f"{len(removed.changelogs)} changelogs"] if removed.changelogs else []
    what += [f"tags {', '.join(removed.tags)}"] if removed.tags else []
    verb = "would be deleted" if dry_run else "were deleted"
    out.result({key: list(value) for key, value in asdict(removed).items()}, f"{', '.join(what)} of {name} {verb}")


def _time(option: str, text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        moment.astimezone()  # the first hours of year 1 may have no place in the local time zone
        return moment
    except (ValueError, OverflowError):
        raise UsageError(f"{option} {text}: not a time such as 2026-05-01T12:00:00Z") from None
