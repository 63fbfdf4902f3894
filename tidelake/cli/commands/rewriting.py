"""`tidelake table rescale`, `rewrite` and `rewrite-file-index`: other files with the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress, Commands, add_dry_run, add_partition, positive, table_command
from tidelake.cli.output import CommandOutput


def add_rescale(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "rescale",
        rescale,
        "change the number of buckets: rewrites the rows of each partition",
        example="tidelake table rescale shop.orders -w lake --bucket 8",
    )
    parser.add_argument(
        "--bucket", type=positive, required=True, metavar="N", help="new number of buckets of each partition"
    )
    add_partition(parser)


def rescale(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, bucket: int, partition: Sequence[tuple[str, str]]
) -> None:
    rewritten = catalog.open().rescale_table(name, bucket, partition=dict(partition) or None)
    if out.is_json:
        out.document({"table": name, "bucket": bucket, "partitions": rewritten})
        return
    for directory in rewritten:
        out.line(directory or "the whole table")
    out.note(f"{name}: {len(rewritten):,} partitions were rewritten into {bucket} buckets")


def add_rewrite(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "rewrite",
        rewrite,
        "change key, buckets, merge engine or file format: rewrites all rows, and swaps them in one snapshot",
        "Name, snapshots, tags, consumers and a pipeline's position stay, and followers continue. A pipeline may run\n"
        "meanwhile; only at the end its rows wait, and it opens the table again. Rows without a value in a column of\n"
        "the new key, or with the key of another row, are shown, and nothing changes. A call that was interrupted can\n"
        "be repeated: it continues. Without a change it only finishes one that was interrupted.",
        example="tidelake table rewrite shop.orders -w lake --set-type 'id BIGINT'",
    )
    changes = parser.add_argument_group("changes")
    changes.add_argument("--primary-key", metavar="COLUMNS", help="columns of the new key, as in id,region")
    for option, metavar, summary in (
        ("--set-type", "COLUMN", "a wider type of a column of the key: 'id BIGINT'; repeatable"),
        ("--set", "KEY=VALUE", "merge-engine, bucket, bucket-key, file.format, and what belongs to them; repeatable"),
        ("--unset", "KEY", "reset such an option to its default; repeatable"),
    ):
        changes.add_argument(option, action="append", default=[], metavar=metavar, help=summary)


def rewrite(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    primary_key: str | None,
    set_type: Sequence[str],
    set: Sequence[str],
    unset: Sequence[str],
) -> None:
    from tidelake.cli.schema_texts import parse_change
    from tidelake.compaction.table_rewrite import meaning_of
    from tidelake.storage.ddl.schema_changes import RewriteChange, UpdatePrimaryKey

    texts = [("--set-type", text) for text in set_type]
    texts += [("--set", text) for text in set] + [("--unset", text) for text in unset]
    parsed = [parse_change(option, text) for option, text in texts]
    if primary_key is not None:
        parsed.append(UpdatePrimaryKey(tuple(part.strip() for part in primary_key.split(",") if part.strip())))
    changes = [change for change in parsed if isinstance(change, RewriteChange)]
    opened = catalog.open()
    before = opened.table(name).context.schema
    snapshot_id = opened.rewrite_table(name, changes)
    if out.is_json:
        out.document({"table": name, "snapshot": snapshot_id})
        return
    if snapshot_id is None:
        out.note(f"{name}: no row had to be rewritten, and the table is as it was asked for")
    else:
        out.note(f"{name}: all rows were rewritten: snapshot {snapshot_id}")
    for line in meaning_of(before, opened.table(name).context.schema):
        out.note(line)


def add_rewrite_file_index(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "rewrite-file-index",
        rewrite_file_index,
        "build the file indexes that the options file-index.* name, for existing files",
        "Data files are not rewritten. One snapshot updates the metadata of files whose indexes changed.",
        example="tidelake table rewrite-file-index shop.orders -w lake --dry-run",
    )
    parser.add_argument("--where", metavar="CONDITION", help="only partitions that match; on partition columns")
    add_dry_run(parser, "only print how many files would change")


def rewrite_file_index(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, where: str | None, dry_run: bool
) -> None:
    from tidelake.storage.read.condition_text import parse_condition

    condition = None if where is None else parse_condition(where)
    found = catalog.open().table(name).rewrite_file_index(where=condition, dry_run=dry_run)
    if out.is_json:
        out.document({"checked": found.checked, "rewritten": found.rewritten, "snapshot": found.snapshot_id})
    elif dry_run:
        out.text(f"{found.rewritten:,} of {found.checked:,} files of {name} would get other indexes")
    elif found.snapshot_id is None:
        out.text(f"all {found.checked:,} files of {name} have their indexes")
    else:
        changed = f"{found.rewritten:,} of {found.checked:,} files of {name} got other indexes"
        out.text(f"{changed}: snapshot {found.snapshot_id}")
