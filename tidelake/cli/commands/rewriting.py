"""`tidelake table rescale`, `rewrite` and `rewrite-file-index`: other files with the same rows."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress, Verbs, add_dry_run, add_partition, positive, table_command
from tidelake.cli.output import CommandOutput


def add_rescale(verbs: Verbs) -> None:
    parser = table_command(
        verbs,
        "rescale",
        rescale,
        "change the number of buckets: rewrites the rows of each partition",
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


def add_rewrite(verbs: Verbs) -> None:
    parser = table_command(
        verbs,
        "rewrite",
        rewrite,
        "make columns of the key wider: rewrites all rows, and swaps them in one snapshot",
        "Integers become wider integers, decimals get more digits, and texts become longer. A pipeline may run\n"
        "meanwhile: its table waits in quarantine for the new key, or is opened again. A call that was\n"
        "interrupted can be repeated: it continues.",
    )
    parser.add_argument(
        "--set-type", action="append", required=True, metavar="COLUMN", help="'id BIGINT'; may be given several times"
    )


def rewrite(out: CommandOutput, *, name: str, catalog: CatalogAddress, set_type: Sequence[str]) -> None:
    from tidelake.cli.schema_texts import parse_change
    from tidelake.storage.ddl.schema_changes import UpdateColumnType

    parsed = [parse_change("--set-type", text) for text in set_type]
    opened = catalog.open()
    snapshot_id = opened.rewrite_table(name, [change for change in parsed if isinstance(change, UpdateColumnType)])
    if out.is_json:
        out.document({"table": name, "snapshot": snapshot_id})
    elif snapshot_id is None:
        out.note(f"{name} had no rows to rewrite; its key has these types now")
    else:
        out.note(f"{name}: all rows were rewritten with the new key: snapshot {snapshot_id}")


def add_rewrite_file_index(verbs: Verbs) -> None:
    parser = table_command(
        verbs,
        "rewrite-file-index",
        rewrite_file_index,
        "build the file indexes that the options file-index.* name, for existing files",
        "Data files are not rewritten. One snapshot updates the metadata of files whose indexes changed.",
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
