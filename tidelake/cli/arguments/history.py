"""`tidelake table tag`, `branch`, `rollback`, `orphans`, commands for partitions, and repairs after lost files."""

from __future__ import annotations

import argparse

from tidelake.cli.arguments.common import Verbs, noun, table_command
from tidelake.cli.arguments.values import names, pair, positive


def add_history(verbs: Verbs) -> None:
    _add_tags(verbs)
    _add_branches(verbs)
    rollback = table_command(
        verbs,
        "rollback",
        "roll a table back to an older snapshot",
        "Deletes later snapshots, changelogs and tags. Their files become orphans. Stop writers and readers first:\n"
        "snapshot ids are reused.",
        module="history",
    )
    to = rollback.add_mutually_exclusive_group(required=True)
    to.add_argument("--snapshot", type=positive, metavar="ID")
    to.add_argument("--tag", metavar="NAME")
    to.add_argument("--as-of", metavar="TIME", help="the last snapshot at this time (2026-05-01T12:00:00Z)")
    to.add_argument(
        "--watermark", type=int, metavar="MS", help="the last snapshot with this watermark or an earlier one"
    )
    _dry_run(rollback)
    orphans = table_command(
        verbs,
        "orphans",
        "delete files that no snapshot, tag or branch references",
        "They are left by crashes, failed commits, rollbacks and deleted branches. Writers can continue.",
        module="history",
    )
    orphans.add_argument(
        "--older-than",
        default="1 d",
        metavar="DURATION",
        help="keep younger files, which may belong to a running commit; default: 1 d",
    )
    _dry_run(orphans)
    _add_partitions(verbs)
    _add_repairs(verbs)


def _add_repairs(verbs: Verbs) -> None:
    analyze = table_command(
        verbs,
        "analyze",
        "collect statistics of rows and columns, for query planners",
        "`NAME$statistics` shows them. Later snapshots keep them until the schema changes.",
        module="maintenance.repairs",
    )
    which = analyze.add_mutually_exclusive_group()
    which.add_argument(
        "--columns", type=names, metavar="COLUMNS", help="separated by commas; default: all that have statistics"
    )
    which.add_argument("--rows-only", action="store_true", help="count rows only")
    files = table_command(
        verbs,
        "remove-missing-files",
        "remove lost data files from the table's metadata",
        "The table is then readable, without their rows. If a backup of the files exists, restore them instead.",
        module="maintenance.repairs",
        function="remove_missing_files",
    )
    _dry_run(files, "only list what is missing")
    manifests = table_command(
        verbs,
        "remove-missing-manifests",
        "remove lost manifests from the latest snapshot",
        "Files that they added are lost; files that they deleted are back. Call `remove-missing-files` next.",
        module="maintenance.repairs",
        function="remove_missing_manifests",
    )
    _dry_run(manifests, "only list what is missing")
    purge = table_command(
        verbs,
        "purge",
        "delete all rows and all history: branches, tags, consumers, older snapshots",
        "The table, its schemas and options are kept. Stop writers and readers first. If interrupted, call it again.",
        module="maintenance.repairs",
    )
    purge.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def _add_partitions(verbs: Verbs) -> None:
    expire = table_command(
        verbs,
        "expire-partitions",
        "drop expired partitions",
        "The table's options partition.* say when a partition expires. Older snapshots keep the rows.",
        module="maintenance.partitions",
        function="expire_partitions",
    )
    expire.add_argument("--older-than", metavar="DURATION", help="instead of partition.expiration-time")
    expire.add_argument(
        "--strategy", choices=["values-time", "update-time"], help="instead of partition.expiration-strategy"
    )
    _dry_run(expire)
    done = table_command(
        verbs,
        "mark-done",
        "write a _SUCCESS file into each partition, to mark it complete",
        module="maintenance.partitions",
        function="mark_done",
    )
    done.add_argument(
        "--partition",
        action="append",
        nargs="+",
        type=pair,
        required=True,
        metavar="COLUMN=VALUE",
        help="partitions with these values; repeatable",
    )
    _dry_run(done, "only list what would be marked")


def _add_tags(verbs: Verbs) -> None:
    tags = noun(verbs, "tag", "tags: named snapshots that do not expire")
    for verb, summary in (("create", "create a tag of a snapshot"), ("replace", "move a tag to another snapshot")):
        parser = table_command(tags, verb, summary, module="history", function=f"{verb}_tag")
        parser.add_argument("tag", metavar="TAG")
        parser.add_argument("--snapshot", type=positive, metavar="ID", help="default: the latest")
        parser.add_argument(
            "--retain", metavar="DURATION", help="`tag expire` deletes it after this time; default: never"
        )
    rename = table_command(tags, "rename", "rename a tag", module="history", function="rename_tag")
    rename.add_argument("tag", metavar="TAG")
    rename.add_argument("new_name", metavar="NEW")
    delete = table_command(
        tags, "delete", "delete a tag and the files that only it references", module="history", function="delete_tag"
    )
    delete.add_argument("tag", metavar="TAG")
    _dry_run(delete)
    expire = table_command(
        tags, "expire", "delete tags whose retention has ended", module="history", function="expire_tags"
    )
    expire.add_argument(
        "--older-than", metavar="TIME", help="also delete tags without retention that are older than TIME"
    )
    _dry_run(expire)


def _add_branches(verbs: Verbs) -> None:
    branches = noun(verbs, "branch", "branches of a table")
    create = table_command(
        branches,
        "create",
        "create a branch from a tag or a snapshot, or empty",
        module="history",
        function="create_branch",
    )
    create.add_argument("branch", metavar="BRANCH")
    first = create.add_mutually_exclusive_group()
    first.add_argument("--tag", metavar="NAME")
    first.add_argument("--snapshot", type=positive, metavar="ID")
    delete = table_command(
        branches, "delete", "delete a branch, its snapshots and tags", module="history", function="delete_branch"
    )
    delete.add_argument("branch", metavar="BRANCH")
    _dry_run(delete)
    rename = table_command(branches, "rename", "rename a branch", module="history", function="rename_branch")
    rename.add_argument("branch", metavar="BRANCH")
    rename.add_argument("new_name", metavar="NEW")
    forward = table_command(
        branches,
        "fast-forward",
        "replace the main branch by this branch",
        "Snapshots after the branch's start are replaced. Stop writers first. If interrupted, call it again.",
        module="history",
        function="fast_forward",
    )
    forward.add_argument("branch", metavar="BRANCH")
    merge = table_command(
        branches,
        "merge",
        "append the rows added since the branch was created",
        "Append tables only. Both sides may only have appended rows. Files are shared, not copied.",
        module="history",
        function="merge_branch",
    )
    merge.add_argument("branch", metavar="BRANCH", help="the branch to merge; `main` to update a branch")


def _dry_run(parser: argparse.ArgumentParser, summary: str = "only list what would be deleted") -> None:
    parser.add_argument("--dry-run", action="store_true", help=summary)
