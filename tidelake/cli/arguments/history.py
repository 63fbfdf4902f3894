"""`tidelake table tag`, `branch`, `rollback`, `orphans`, and what is done to partitions, or when files are lost."""

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
        "take the table back to an older state",
        "Later snapshots, changelogs and tags go; their files are orphans then. Stop writers and readers first: ids\n"
        "are given again.",
        module="history",
    )
    to = rollback.add_mutually_exclusive_group(required=True)
    to.add_argument("--snapshot", type=positive, metavar="ID")
    to.add_argument("--tag", metavar="NAME")
    to.add_argument("--as-of", metavar="TIME", help="the last one committed by then (2026-05-01T12:00:00Z)")
    to.add_argument("--watermark", type=int, metavar="MS", help="the last one with this watermark or an earlier one")
    _dry_run(rollback)
    orphans = table_command(
        verbs,
        "orphans",
        "delete files of all branches that nothing names",
        "They are of crashes, lost commits, rollbacks, deleted branches. Writers may go on meanwhile.",
        module="history",
    )
    orphans.add_argument(
        "--older-than",
        default="1 d",
        metavar="DURATION",
        help="younger files may belong to a commit under way; default: 1 d",
    )
    _dry_run(orphans)
    _add_partitions(verbs)
    _add_repairs(verbs)


def _add_repairs(verbs: Verbs) -> None:
    analyze = table_command(
        verbs,
        "analyze",
        "count rows and the values of columns, for planners of queries",
        "What is found is in `NAME$statistics`, and later snapshots keep it until the schema changes.",
        module="maintenance.repairs",
    )
    which = analyze.add_mutually_exclusive_group()
    which.add_argument("--columns", type=names, metavar="COLUMNS", help="separated by commas; default: all that can be")
    which.add_argument("--rows-only", action="store_true", help="count rows only")
    files = table_command(
        verbs,
        "remove-missing-files",
        "leave data files that are lost for good out of the table",
        "It can be read then, without their rows. Restore them from a backup if there is one.",
        module="maintenance.repairs",
        function="remove_missing_files",
    )
    _dry_run(files, "only say which are missing")
    manifests = table_command(
        verbs,
        "remove-missing-manifests",
        "leave manifests that are lost for good out of the latest snapshot",
        "Files that they added are gone, files that they deleted are back: call `remove-missing-files` next.",
        module="maintenance.repairs",
        function="remove_missing_manifests",
    )
    _dry_run(manifests, "only say which are missing")
    purge = table_command(
        verbs,
        "purge",
        "delete all rows with all history: branches, tags, consumers, older snapshots",
        "The table, its schemas and options stay. Stop writers and readers first; interrupted, call it again.",
        module="maintenance.repairs",
    )
    purge.add_argument("--yes", action="store_true", help="don't ask")


def _add_partitions(verbs: Verbs) -> None:
    expire = table_command(
        verbs,
        "expire-partitions",
        "drop partitions whose time is over",
        "By the table's options partition.*; older snapshots keep the rows.",
        module="maintenance.partitions",
        function="expire_partitions",
    )
    expire.add_argument("--older-than", metavar="DURATION", help="in place of partition.expiration-time")
    expire.add_argument(
        "--strategy", choices=["values-time", "update-time"], help="in place of partition.expiration-strategy"
    )
    _dry_run(expire, "only say which would go")
    done = table_command(
        verbs,
        "mark-done",
        "say to other jobs that partitions are complete: a file _SUCCESS in each",
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
        help="those that agree; repeatable",
    )
    _dry_run(done, "only say which would be marked")


def _add_tags(verbs: Verbs) -> None:
    tags = noun(verbs, "tag", "names of snapshots, which are kept whatever expires")
    for verb, summary in (("create", "keep a snapshot under a name"), ("replace", "the same name, another snapshot")):
        parser = table_command(tags, verb, summary, module="history", function=f"{verb}_tag")
        parser.add_argument("tag", metavar="TAG")
        parser.add_argument("--snapshot", type=positive, metavar="ID", help="default: the latest")
        parser.add_argument("--retain", metavar="DURATION", help="`tag expire` deletes it after that; default: never")
    rename = table_command(tags, "rename", "another name, the same snapshot", module="history", function="rename_tag")
    rename.add_argument("tag", metavar="TAG")
    rename.add_argument("new_name", metavar="NEW")
    delete = table_command(
        tags, "delete", "files that only it keeps go with it", module="history", function="delete_tag"
    )
    delete.add_argument("tag", metavar="TAG")
    _dry_run(delete)
    expire = table_command(tags, "expire", "delete those whose time is over", module="history", function="expire_tags")
    expire.add_argument("--older-than", metavar="TIME", help="also those without a time that were made before")
    _dry_run(expire)


def _add_branches(verbs: Verbs) -> None:
    branches = noun(verbs, "branch", "lines of snapshots beside the main one")
    create = table_command(
        branches,
        "create",
        "begin one, with a tag, a snapshot, or without rows",
        module="history",
        function="create_branch",
    )
    create.add_argument("branch", metavar="BRANCH")
    first = create.add_mutually_exclusive_group()
    first.add_argument("--tag", metavar="NAME")
    first.add_argument("--snapshot", type=positive, metavar="ID")
    delete = table_command(branches, "delete", "its snapshots and tags go", module="history", function="delete_branch")
    delete.add_argument("branch", metavar="BRANCH")
    _dry_run(delete)
    rename = table_command(
        branches, "rename", "another name, the same snapshots", module="history", function="rename_branch"
    )
    rename.add_argument("branch", metavar="BRANCH")
    rename.add_argument("new_name", metavar="NEW")
    forward = table_command(
        branches,
        "fast-forward",
        "the table becomes what the branch is",
        "States from where the branch begins are replaced. Stop writers first; interrupted, call it again.",
        module="history",
        function="fast_forward",
    )
    forward.add_argument("branch", metavar="BRANCH")
    merge = table_command(
        branches,
        "merge",
        "add the rows that were added on a branch since it parted from the table",
        "Append tables only, and where both were only added to. Files are shared, none is copied.",
        module="history",
        function="merge_branch",
    )
    merge.add_argument("branch", metavar="BRANCH", help="`main`, to bring a branch up to date")


def _dry_run(parser: argparse.ArgumentParser, summary: str = "only say what would go") -> None:
    parser.add_argument("--dry-run", action="store_true", help=summary)
