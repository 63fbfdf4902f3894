"""`tidelake table …`: creates tables, reads them, follows their changes."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from tidelake.catalog import Catalog
from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.conditions import parse_condition
from tidelake.cli.exits import CommandRefused, UsageError
from tidelake.cli.formatting import printable, utc_text
from tidelake.cli.output import CommandOutput
from tidelake.cli.rendering.explained_scan import print_explained_scan
from tidelake.cli.rendering.rows import print_changes, print_rows
from tidelake.cli.rendering.table_summary import print_table_summary, summarize_table
from tidelake.storage.base.arguments import shown
from tidelake.storage.base.errors import BadInput, TidelakeError
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.ddl.materialized import UNITS, MaterializedDefinition
from tidelake.storage.kinds.format_tables.objects import is_object_table
from tidelake.storage.model.snapshots.snapshot import Snapshot, SnapshotStore
from tidelake.storage.model.types import DataField, parse_type
from tidelake.storage.read.changes.change_reader import ChangeBatch
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.stream.start import StartAt
from tidelake.table import Table

_SNAPSHOTS_SHOWN = 20


# ---------------------------------------------------------------- management


def create(  # noqa: PLR0913 - one parameter per option
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    columns: Sequence[str],
    schema_from: str | None,
    primary_key: Sequence[str],
    partition_by: Sequence[str],
    options: Sequence[tuple[str, str]],
    query: str | None,
    freshness: str | None,
    comment: str | None,
    if_not_exists: bool,
) -> None:
    has_own_columns = is_object_table(dict(options))
    if bool(columns) == bool(schema_from) and not has_own_columns:
        raise UsageError("pass the columns with either --column or --schema-from")
    opened = catalog.open()
    schema = [column_from_text(text) for text in columns] if schema_from is None else _parquet_schema(schema_from)
    with _database_of(opened, name) as is_new_database:
        table = opened.create_table(
            name,
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options=_definition(query, freshness) | dict(options),
            comment=comment,
            if_not_exists=if_not_exists,
        )
    if is_new_database:
        out.note(f"created database {Identifier.parse(name).database}")
    if out.is_json:
        out.document(summarize_table(table))
    else:
        out.console.print(printable(f"{table.name} at {table.location}"), soft_wrap=True)


@contextmanager
def _database_of(catalog: Catalog, table: str) -> Iterator[bool]:
    """Create the table's database if it doesn't exist, and yield whether it was created.

    If the table is refused, the new database is deleted, unless it contains another table by then.
    """
    database = Identifier.parse(table).database
    is_new = database not in catalog.list_databases()
    if is_new:
        catalog.create_database(database, if_not_exists=True)
    try:
        yield is_new
    except TidelakeError:
        if is_new:
            with suppress(TidelakeError):
                catalog.drop_database(database)
        raise


def list_tables(out: CommandOutput, *, database: str | None, catalog: CatalogAddress) -> None:
    opened = catalog.open()
    databases = opened.list_databases() if database is None else [database]
    names = [f"{database}.{table}" for database in databases for table in opened.list_tables(database)]
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.console.print(printable(name), soft_wrap=True)
    if not names:
        out.note(f"no tables in {catalog.warehouse if database is None else f'database {database}'}")


def show(out: CommandOutput, *, name: str, catalog: CatalogAddress, all_buckets: bool) -> None:
    summary = summarize_table(catalog.open().table(name))
    if out.is_json:
        out.document(summary)
    else:
        print_table_summary(out.console, summary, all_buckets=all_buckets)


def snapshots(out: CommandOutput, *, name: str, catalog: CatalogAddress, limit: int | None) -> None:
    store = _snapshots(catalog.open().table(name))
    latest = store.latest()
    newest_first = store.backwards_from(latest) if latest is not None else iter(())
    if out.is_json:
        out.lines(snapshot.to_members() for snapshot in _limited(newest_first, limit))
        return
    shown = list(_limited(newest_first, limit or _SNAPSHOTS_SHOWN))
    _print_snapshots(out, shown)
    if shown and store.exists(shown[-1].id - 1):
        out.note(f"showing the newest {len(shown)}; --limit shows more")
    if not shown:
        out.note(f"{name} has no snapshot yet: nothing was committed")


def _print_snapshots(out: CommandOutput, shown: Sequence[Snapshot]) -> None:
    from rich import box
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    left = ("committed (UTC)", "kind", "commit user")
    for title in ("id", *left[:2], "rows added", "rows in files", "changes", "identifier", left[2]):
        is_number = title not in left
        grid.add_column(title, justify="right" if is_number else "left", overflow="fold")
    for snapshot in shown:
        cells = (
            str(snapshot.id),
            utc_text(snapshot.time_ms),
            snapshot.commit_kind.value,
            f"{snapshot.delta_record_count:+,}",
            f"{snapshot.total_record_count:,}",
            f"{snapshot.changelog_record_count or 0:,}",
            f"{snapshot.commit_identifier}" if snapshot.is_numbered else "",
            snapshot.commit_user,
        )
        grid.add_row(*(Text(printable(cell)) for cell in cells))
    if shown:
        out.console.print(grid)


def drop(out: CommandOutput, *, name: str, catalog: CatalogAddress, yes: bool, if_exists: bool) -> None:
    opened = catalog.open()
    if not yes:
        question = f"Delete {name} in {catalog.warehouse}, with all data, snapshots and tags?"
        _confirm(out, name, question, "was not dropped")
    opened.drop_table(name, if_exists=if_exists)
    if out.is_json:
        out.document({"dropped": name})
    else:
        out.note(f"dropped {name}")


def rename(out: CommandOutput, *, name: str, catalog: CatalogAddress, new_name: str) -> None:
    catalog.open().rename_table(name, new_name)
    if out.is_json:
        out.document({"renamed": name, "name": new_name})
    else:
        out.note(f"renamed {name} to {new_name}")


def truncate(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, partition: Sequence[tuple[str, str]], yes: bool
) -> None:
    table = catalog.open().table(name)
    which = f"rows with {', '.join(f'{column} = {value}' for column, value in partition)}" if partition else "all rows"
    if not yes:
        _confirm(out, name, f"Remove {which} from {name} in {catalog.warehouse}?", "was not truncated")
    snapshot_id = table.truncate(partition=dict(partition) or None)
    if out.is_json:
        out.document({"truncated": name, "snapshot": snapshot_id})
    else:
        out.note(f"removed {which} from {name}: snapshot {snapshot_id}")


def _confirm(out: CommandOutput, name: str, question: str, otherwise: str) -> None:
    """Raise CommandRefused unless the user types the table's name."""
    if not sys.stdin.isatty() or out.is_json:
        raise CommandRefused(f"{question} Pass --yes to confirm")
    sys.stderr.write(printable(f"{question} Type its name: "))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise CommandRefused(f"{name} {otherwise}")


# ---------------------------------------------------------------- reading


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
    bucket: int | None,
) -> None:
    condition = None if where is None else parse_condition(where)
    table = catalog.open().table(name, _of_bucket(bucket))
    found = table.scan(
        snapshot=snapshot, tag=tag, as_of=None if as_of is None else _time(as_of), columns=columns, filter=condition
    )
    if row_format == "explain":
        print_explained_scan(out, found.explain(), found.snapshot_id, found.estimated_rows())
        return
    print_rows(out, found.schema, found.to_batches(), row_format or ("json" if out.is_json else "table"), limit)


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


_follow = follow


def _of_bucket(bucket: int | None) -> dict[str, str]:
    return {} if bucket is None else {"scan.bucket": str(bucket)}


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


class _ChangeFilter:
    """The requested changes. Raises BadInput for an unknown column, also in the condition."""

    def __init__(self, table: Table, columns: Sequence[str] | None, where: str | None) -> None:
        schema = table.schema
        if missing := [name for name in columns or () if name not in schema.names]:
            raise BadInput(f"no column {missing[0]!r}; the table has {', '.join(schema.names)}")
        self._condition: Predicate | None = None if where is None else parse_condition(where)
        self._expression = None if self._condition is None else self._condition.expression(schema)

    def of(self, change: ChangeBatch) -> ChangeBatch:
        if self._expression is None or change.is_break:
            return change
        rows = pa.Table.from_batches([change.rows]).filter(self._expression).combine_chunks()
        batches = rows.to_batches() or [change.rows.slice(0, 0)]
        return replace(change, rows=batches[0])


# ---------------------------------------------------------------- parsing


def _snapshots(table: Table) -> SnapshotStore:
    return table.context.snapshots


def column_from_text(text: str) -> DataField:
    """Parse `amount:DECIMAL(10,2)`, the value of `--column`."""
    name, colon, type_text = text.partition(":")
    if not colon or not name.strip():
        raise UsageError(f"--column {shown(text)}: write NAME:TYPE, as in 'amount:DECIMAL(10,2) NOT NULL'")
    try:
        return DataField(0, name.strip(), parse_type(type_text.strip()))
    except BadInput as error:
        raise UsageError(f"--column {shown(text)}: {error}") from None


def _definition(query: str | None, freshness: str | None) -> dict[str, str]:
    """Return the options of a materialized table."""
    if query is None:
        if freshness is not None:
            raise UsageError("--freshness says how old the rows of a query may be; pass --query, too")
        return {}
    number, _, unit = (freshness or "1 hour").strip().partition(" ")
    unit = unit.strip().lower().removesuffix("s")
    if not number.isdecimal() or unit not in UNITS:
        raise UsageError(f"--freshness {shown(freshness)}: write a number of {', '.join(UNITS)}, as in '3 hours'")
    return MaterializedDefinition(query, int(number), unit).to_options()


def _parquet_schema(path: str) -> pa.Schema:
    try:
        with Path(path).open("rb") as file:
            return pa.parquet.read_schema(file).remove_metadata()
    except pa.ArrowInvalid as error:
        raise BadInput(f"--schema-from {path!r} is not a Parquet file: {str(error).splitlines()[0]}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise BadInput(f"--schema-from {path!r} can't be read: {error}. Pass the path of a Parquet file") from None


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--as-of {text!r}: write a time as in 2026-05-01T12:00:00Z") from None


def _limited(items: Iterator[Snapshot], limit: int | None) -> Iterator[Snapshot]:
    for count, item in enumerate(items, start=1):
        yield item
        if count == limit:
            return
