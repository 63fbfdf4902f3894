"""`tidelake table scan`, `changes` and `follow`: read rows, and their changes."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidelake.cli.arguments import CatalogAddress, Commands, add_vertical, names, not_negative, positive, table_command
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    from tidelake.storage.read.changes.change_reader import ChangeBatch
    from tidelake.storage.read.stream.start import StartAt
    from tidelake.table import Table


# ---------------------------------------------------------------- scan


def add_scan(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "scan",
        scan,
        "read the rows of the newest snapshot, or of another",
        "A condition compares columns with values: --where \"amount > 3 and status in ('new', 'paid')\".\n"
        "Operators: = != < <= > >=, [not] in (…), [not] between … and …, is [not] null, like 'abc%', and, or, not.",
        example='tidelake table scan shop.orders -w lake --columns id,status --where "amount > 3" --limit 10',
    )
    _add_projection(parser)
    _add_bucket(parser)
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--snapshot", type=positive, metavar="ID")
    when.add_argument("--tag", metavar="NAME")
    when.add_argument("--as-of", metavar="TIME", help="ISO time (2026-05-01T12:00:00Z); local time if it has no zone")
    parser.add_argument("--limit", type=positive, metavar="N", help="default: 100 with --format table, otherwise all")
    parser.add_argument(
        "--format",
        dest="row_format",
        choices=("table", "json", "csv", "arrow"),
        help="default: table; json: one row per line; arrow: an Arrow IPC stream",
    )
    add_vertical(parser)
    parser.add_argument(
        "--explain",
        dest="row_format",
        action="store_const",
        const="explain",
        help="print for each file why it is read or skipped, instead of rows",
    )


def scan(  # noqa: PLR0913 - one parameter per option
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    columns: Sequence[str] | None,
    where: str | None,
    snapshot: int | None,
    tag: str | None,
    as_of: str | None,
    limit: int | None,
    row_format: str | None,
    vertical: bool,
    bucket: int | None,
) -> None:
    from tidelake.cli.rendering.explained_scan import print_explained_scan
    from tidelake.cli.rendering.rows import print_rows

    table = catalog.open().table(name, _of_bucket(bucket))
    found = table.scan(
        snapshot=snapshot, tag=tag, as_of=None if as_of is None else _time(as_of), columns=columns, filter=where
    )
    if row_format == "explain":
        print_explained_scan(out, found.explain(), found.snapshot_id, found.estimated_rows())
        return
    shown_as = row_format or ("json" if out.is_json else "table")
    print_rows(out, found.schema, found.to_batches(), shown_as, limit, vertical=vertical)


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text!r}: write a time as in 2026-05-01T12:00:00Z") from None


# ---------------------------------------------------------------- changes, follow


def add_changes(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "changes",
        changes,
        "read the changes of snapshots, row by row",
        "+I: inserted; -U and +U: the row before and after an update; -D: deleted.",
        example="tidelake table changes shop.orders -w lake --between 17,42",
    )
    _add_projection(parser)
    _add_bucket(parser)
    parser.add_argument(
        "--start",
        type=_start,
        metavar="WHERE",
        help="first snapshot; default: the oldest. With --follow: as in `follow`; default: latest",
    )
    parser.add_argument("--end", type=positive, metavar="ID", help="last snapshot; default: the newest now")
    between = parser.add_mutually_exclusive_group()
    between.add_argument(
        "--between",
        type=_range("auto"),
        metavar="A,B",
        help="after A, up to and including B: two snapshot ids, tags or times",
    )
    between.add_argument(
        "--diff",
        dest="between",
        type=_range("diff"),
        metavar="A,B",
        help="the difference between the two states, without the changes in between",
    )
    parser.add_argument("--follow", action="store_true", help="continue with new commits, until Ctrl-C or --end")
    parser.add_argument("--consumer", metavar="NAME", help="with --follow: keep the position in the table")
    parser.add_argument("--share", type=_share, metavar="N/COUNT", help="with --follow: as in `follow`")
    parser.add_argument("--limit", type=positive, metavar="N", help="end after this many changes")


def changes(  # noqa: PLR0913 - one parameter per option
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    columns: Sequence[str] | None,
    where: str | None,
    start: StartAt | None,
    end: int | None,
    between: tuple[str, str, str] | None,
    follow: bool,
    consumer: str | None,
    share: tuple[int, int] | None,
    bucket: int | None,
    limit: int | None,
) -> None:
    from tidelake.cli.rendering.rows import print_changes

    if follow:
        if between:
            raise UsageError("--between and --diff name a range with an end: pass either them or --follow")
        start_at = "latest" if start is None else start
        _follow(
            out,
            name=name,
            catalog=catalog,
            columns=columns,
            where=where,
            start=start_at,
            consumer=consumer,
            until=end,
            share=share,
            bucket=bucket,
            limit=limit,
        )
        return
    if consumer is not None or share is not None or (start is not None and not isinstance(start, int)):
        raise UsageError("--consumer, --share, and a --start that is not a snapshot id need --follow")
    table = catalog.open().table(name, _of_bucket(bucket))
    wanted = _ChangeFilter(table, columns, where)
    if between:
        mode, *ends = between
        found = table.changes(between=_parse_range(ends), between_mode=mode)
        print_changes(out, map(wanted.of, found), columns, limit)
        return
    first = start if start is not None else table.context.history.earliest_id()
    if first is None:
        out.note(f"{name} has no snapshot yet: nothing was committed")
        return
    print_changes(out, map(wanted.of, table.changes(start=first, end=end)), columns, limit)


def add_follow(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "follow",
        follow,
        "read changes as they are committed, until Ctrl-C",
        example="tidelake table follow shop.orders -w lake --consumer search --start latest-full",
    )
    _add_projection(parser)
    _add_bucket(parser)
    parser.add_argument(
        "--start",
        type=_start,
        default="latest",
        metavar="WHERE",
        help="latest (default), earliest, a snapshot id, latest-full, …: `tidelake help reading-changes`",
    )
    parser.add_argument("--consumer", metavar="NAME", help="keep the position in the table under this name")
    parser.add_argument("--until", type=positive, metavar="ID", help="end after this snapshot")
    parser.add_argument(
        "--share",
        type=_share,
        metavar="N/COUNT",
        help="1/3: the first of three readers, each with its own buckets and position",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="end after this many changes")


def follow(  # noqa: PLR0913 - one parameter per option
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    columns: Sequence[str] | None,
    where: str | None,
    start: StartAt,
    consumer: str | None,
    until: int | None,
    share: tuple[int, int] | None,
    bucket: int | None,
    limit: int | None,
) -> None:
    """Follow changes. Ends with Ctrl-C, after the snapshot `until`, or after `limit` rows."""
    from tidelake.cli.rendering.rows import print_changes

    if limit is not None and consumer is not None:
        raise UsageError(
            "--limit may end within a snapshot, but --consumer keeps whole snapshots: pass only one of them"
        )
    table = catalog.open().table(name, _of_bucket(bucket))
    wanted = _ChangeFilter(table, columns, where)
    out.note(f"following {name}; Ctrl-C ends it")
    try:
        with closing(table.follow(start=start, consumer=consumer, end=until, share=share)) as found:
            print_changes(out, map(wanted.of, found), columns, limit)
    except KeyboardInterrupt:
        return


_follow = follow  # `changes` has a parameter of this name


class _ChangeFilter:
    """The requested changes. Raises BadInput for an unknown column, also in the condition."""

    def __init__(self, table: Table, columns: Sequence[str] | None, where: str | None) -> None:
        from tidelake.storage.read.conditions import as_predicate

        schema = table.schema
        if missing := [name for name in columns or () if name not in schema.names]:
            raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(schema.names)}")
        self._expression = None if where is None else as_predicate(where, schema).expression(schema)

    def of(self, change: ChangeBatch) -> ChangeBatch:
        if self._expression is None or change.is_break:
            return change
        import pyarrow as pa

        rows = pa.Table.from_batches([change.rows]).filter(self._expression).combine_chunks()
        batches = rows.to_batches() or [change.rows.slice(0, 0)]
        return replace(change, rows=batches[0])


def _parse_range(between: Sequence[str]) -> tuple[str | datetime, ...]:
    """Parse snapshot ids, tags or times."""
    times = [_as_time(text) for text in between]
    if all(time is not None for time in times):
        return tuple(time for time in times if time is not None)
    return tuple(between)


def _as_time(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if "T" in text or " " in text else None
    except ValueError:
        return None


# ---------------------------------------------------------------- what all three take


def _add_projection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--columns", type=names, metavar="COLUMNS", help="only these, in this order, separated by commas"
    )
    parser.add_argument("--where", metavar="CONDITION", help="only rows that match")


def _add_bucket(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--bucket", type=not_negative, metavar="ID", help="only this bucket of each partition")


def _of_bucket(bucket: int | None) -> dict[str, str]:
    return {} if bucket is None else {"scan.bucket": str(bucket)}


def _range(mode: str) -> Callable[[str], tuple[str, str, str]]:
    def parse(text: str) -> tuple[str, str, str]:
        first, comma, last = (part.strip() for part in text.partition(","))
        if not comma or not first or not last or "," in last:
            raise argparse.ArgumentTypeError(f"{text!r}: write A,B, as in 3,7")
        return mode, first, last

    return parse


def _share(text: str) -> tuple[int, int]:
    """Parse a share: `1/3` is (0, 3)."""
    number, slash, count = text.partition("/")
    if not (slash and number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r}: write N/COUNT, as in 1/3, the first of three")
    return int(number) - 1, int(count)


_START_WORDS: Final = ("latest", "earliest", "latest-full", "compacted-full")


def _start(text: str) -> str | int:
    """Parse the start of a read: a word, a mode with its value after a colon, a position, or a snapshot id."""
    if text in _START_WORDS or text.startswith(("from-", "{")):
        return text
    return positive(text)


_start.__name__ = "start (latest, earliest, a snapshot id, …)"  # argparse says: invalid start (…) value
