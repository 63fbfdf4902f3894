"""`tidelake table create`, `list`, `show`, `snapshots`, `rename`, `clone`, `truncate`, `drop` and `analyze`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import (
    CatalogAddress,
    Commands,
    add_partition,
    add_vertical,
    add_warehouse,
    command,
    names,
    pair,
    positive,
    table_command,
)
from tidelake.cli.exits import CommandRefused, UsageError
from tidelake.cli.formatting import printable, utc_text
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, TidelakeError

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.catalog import Catalog
    from tidelake.storage.model.snapshots.snapshot import Snapshot
    from tidelake.table import Table

_SNAPSHOTS_SHOWN = 20


# ---------------------------------------------------------------- create


def add_create(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "create",
        create,
        "create a table, and its database if it does not exist",
        example="tidelake table create shop.orders -w lake --column 'id:BIGINT NOT NULL' \\\n"
        "  --column 'amount:DECIMAL(10,2)' --primary-key id",
    )
    parser.add_argument(
        "--column",
        dest="columns",
        action="append",
        default=[],
        metavar="NAME:TYPE",
        help="a column with its Paimon type, repeatable: 'amount:DECIMAL(10,2) NOT NULL'",
    )
    parser.add_argument("--schema-from", metavar="FILE", help="take the columns of a Parquet file instead")
    parser.add_argument("--primary-key", type=names, default=(), metavar="COLUMNS", help="separated by commas")
    parser.add_argument("--partition-by", type=names, default=(), metavar="COLUMNS", help="separated by commas")
    parser.add_argument(
        "--option",
        dest="options",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="table option of Paimon, as in --option bucket=4; repeatable",
    )
    parser.add_argument("--query", metavar="SQL", help="create a materialized table of this query; `refresh` fills it")
    parser.add_argument("--freshness", metavar="TIME", help="with --query: how old rows may be; default: '1 hour'")
    parser.add_argument("--comment", metavar="TEXT")
    parser.add_argument("--if-not-exists", action="store_true", help="no error if it exists; it is not changed")


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
    from tidelake.cli.rendering.table_summary import summarize_table
    from tidelake.cli.schema_texts import column_from_text
    from tidelake.storage.catalog.identifier import Identifier
    from tidelake.storage.kinds.format_tables.objects import is_object_table

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
        out.line(f"{table.name} at {table.location}")


@contextmanager
def _database_of(catalog: Catalog, table: str) -> Iterator[bool]:
    """Create the table's database if it doesn't exist, and yield whether it was created.

    If the table is refused, the new database is deleted, unless it contains another table by then.
    """
    from tidelake.storage.catalog.identifier import Identifier

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


def _definition(query: str | None, freshness: str | None) -> dict[str, str]:
    """Return the options of a materialized table."""
    from tidelake.storage.base.arguments import shown
    from tidelake.storage.ddl.materialized import UNITS, MaterializedDefinition

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
    from pathlib import Path

    import pyarrow as pa
    import pyarrow.parquet

    try:
        with Path(path).open("rb") as file:
            return pa.parquet.read_schema(file).remove_metadata()
    except pa.ArrowInvalid as error:
        raise BadInput(f"--schema-from {path!r} is not a Parquet file: {str(error).splitlines()[0]}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the path
        raise BadInput(f"--schema-from {path!r} can't be read: {error}. Pass the path of a Parquet file") from None


# ---------------------------------------------------------------- list, show, snapshots


def add_list(verbs: Commands) -> None:
    parser = command(verbs, "list", list_tables, "list tables", example="tidelake table list shop -w lake")
    parser.add_argument("database", metavar="DATABASE", nargs="?", help="default: the whole warehouse")
    add_warehouse(parser)


def list_tables(out: CommandOutput, *, database: str | None, catalog: CatalogAddress) -> None:
    opened = catalog.open()
    databases = opened.list_databases() if database is None else [database]
    names = [f"{database}.{table}" for database in databases for table in opened.list_tables(database)]
    if out.is_json:
        out.document(names)
        return
    for name in names:
        out.line(name)
    if not names:
        out.note(f"no tables in {catalog.warehouse if database is None else f'database {database}'}")


def add_show(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "show",
        show,
        "show columns, keys, options, newest snapshot and files",
        example="tidelake table show shop.orders -w lake --web orders.html",
    )
    parser.add_argument("--all-buckets", action="store_true", help="list every bucket, not only the largest")
    parser.add_argument(
        "--web",
        nargs="?",
        const="",
        metavar="FILE",
        help="write a page that plays back the sorted runs of the newest 200 snapshots; default: NAME.html",
    )


def show(out: CommandOutput, *, name: str, catalog: CatalogAddress, all_buckets: bool, web: str | None) -> None:
    from tidelake.cli.rendering.table_summary import print_table_summary, summarize_table

    table = catalog.open().table(name)
    if web is not None:
        _write_page(out, table, web or f"{name}.html")
        return
    summary = summarize_table(table)
    if out.is_json:
        out.document(summary)
    else:
        print_table_summary(out.console, summary, all_buckets=all_buckets)


def _write_page(out: CommandOutput, table: Table, file: str) -> None:
    from pathlib import Path

    from tidelake.ingest.monitoring.lsm_page import lsm_page

    page = lsm_page(table.context)
    try:
        Path(file).write_text(page, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"--web {file!r} can't be written: {error}. Pass the path of another file") from None
    out.result({"file": str(Path(file).absolute())}, f"wrote {file}: open it in a browser")


def add_snapshots(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "snapshots",
        snapshots,
        "list snapshots, newest first",
        example="tidelake table snapshots shop.orders -w lake --limit 5",
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="default: 20, or all with --json")
    add_vertical(parser)


def snapshots(out: CommandOutput, *, name: str, catalog: CatalogAddress, limit: int | None, vertical: bool) -> None:
    store = catalog.open().table(name).context.snapshots
    latest = store.latest()
    newest_first = store.backwards_from(latest) if latest is not None else iter(())
    if out.is_json:
        out.lines(snapshot.to_members() for snapshot in _limited(newest_first, limit))
        return
    shown = list(_limited(newest_first, limit or _SNAPSHOTS_SHOWN))
    _print_snapshots(out, shown, vertical=vertical)
    if shown and store.exists(shown[-1].id - 1):
        out.note(f"showing the newest {len(shown)}; --limit shows more")
    if not shown:
        out.note(f"{name} has no snapshot yet: nothing was committed")


def _limited(items: Iterator[Snapshot], limit: int | None) -> Iterator[Snapshot]:
    for count, item in enumerate(items, start=1):
        yield item
        if count == limit:
            return


def _print_snapshots(out: CommandOutput, shown: Sequence[Snapshot], *, vertical: bool) -> None:
    from rich.text import Text

    from tidelake.cli.rendering.grids import print_grid

    counts = ("rows added", "rows in files", "changes", "identifier")
    titles = ("id", "committed (UTC)", "kind", *counts, "commit user")
    rows = []
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
        rows.append([Text(printable(cell)) for cell in cells])
    if shown:
        are_numbers = [title in ("id", *counts) for title in titles]
        print_grid(out, titles, rows, right=are_numbers, vertical=vertical, remedy="--vertical prints all columns")


# ---------------------------------------------------------------- rename, clone


def add_rename(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "rename",
        rename,
        "rename a table; stop its writers first",
        example="tidelake table rename shop.orders shop.old_orders -w lake",
    )
    parser.add_argument("new_name", metavar="NEW", help="database.table")


def rename(out: CommandOutput, *, name: str, catalog: CatalogAddress, new_name: str) -> None:
    catalog.open().rename_table(name, new_name)
    out.done({"renamed": name, "name": new_name}, f"renamed {name} to {new_name}")


def add_clone(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "clone",
        clone,
        "copy a snapshot into a new table; files are copied unchanged",
        "History, tags, branches and consumers are not copied. A clone that fails is dropped.",
        example="tidelake table clone shop.orders test.orders -w lake --snapshot 42",
    )
    parser.add_argument("new_name", metavar="NEW", help="database.table")
    parser.add_argument("--to", metavar="PATH", help="warehouse of the clone; default: the same")
    parser.add_argument(
        "--to-catalog-option",
        dest="to_options",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="like --catalog-option, for the clone's warehouse; repeatable",
    )
    of = parser.add_mutually_exclusive_group()
    of.add_argument("--snapshot", type=positive, metavar="ID", help="default: the newest")
    of.add_argument("--tag", metavar="NAME")


def clone(
    out: CommandOutput,
    *,
    name: str,
    catalog: CatalogAddress,
    new_name: str,
    to: str | None,
    to_options: Sequence[tuple[str, str]],
    snapshot: int | None,
    tag: str | None,
) -> None:
    from tidelake.catalog import open_catalog

    if to is None and to_options:
        raise UsageError("--to-catalog-option needs --to")
    source = catalog.open()
    target = source if to is None else open_catalog(to, **dict(to_options))
    cloned = target.clone_table(source.table(name), new_name, snapshot=snapshot, tag=tag)
    newest = cloned.context.snapshots.latest()
    rows = 0 if newest is None else newest.total_record_count
    found = {"table": new_name, "location": cloned.location, "rows_in_files": rows}
    out.done(found, f"{new_name} is a clone of {name}, with {rows:,} rows in its files: {cloned.location}")


# ---------------------------------------------------------------- truncate, drop


def add_truncate(verbs: Commands) -> None:
    summary = "delete all rows, or those of some partitions; older snapshots keep them"
    parser = table_command(
        verbs,
        "truncate",
        truncate,
        summary,
        example="tidelake table truncate shop.orders -w lake --partition day=2026-05-01",
    )
    add_partition(parser)
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def truncate(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, partition: Sequence[tuple[str, str]], yes: bool
) -> None:
    table = catalog.open().table(name)
    which = f"rows with {', '.join(f'{column} = {value}' for column, value in partition)}" if partition else "all rows"
    if not yes:
        _confirm(out, name, f"Remove {which} from {name} in {catalog.warehouse}?", "was not truncated")
    snapshot_id = table.truncate(partition=dict(partition) or None)
    done = {"truncated": name, "snapshot": snapshot_id}
    out.done(done, f"removed {which} from {name}: snapshot {snapshot_id}")


def add_drop(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "drop",
        drop,
        "delete a table with all its data, snapshots and tags",
        example="tidelake table drop shop.orders -w lake",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.add_argument("--if-exists", action="store_true", help="no error if it does not exist")


def drop(out: CommandOutput, *, name: str, catalog: CatalogAddress, yes: bool, if_exists: bool) -> None:
    opened = catalog.open()
    if not yes:
        question = f"Delete {name} in {catalog.warehouse}, with all data, snapshots and tags?"
        _confirm(out, name, question, "was not dropped")
    opened.drop_table(name, if_exists=if_exists)
    out.done({"dropped": name}, f"dropped {name}")


def _confirm(out: CommandOutput, name: str, question: str, otherwise: str) -> None:
    """Raise CommandRefused unless the user types the table's name."""
    if not sys.stdin.isatty() or out.is_json:
        raise CommandRefused(f"{question} Pass --yes to confirm")
    sys.stderr.write(printable(f"{question} Type its name: "))
    sys.stderr.flush()
    if sys.stdin.readline().strip() != name:
        raise CommandRefused(f"{name} {otherwise}")


# ---------------------------------------------------------------- analyze


def add_analyze(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "analyze",
        analyze,
        "collect statistics of rows and columns, for query planners",
        "`NAME$statistics` shows them. Later snapshots keep them until the schema changes.",
        example="tidelake table analyze shop.orders -w lake --columns id,amount",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--columns", type=names, metavar="COLUMNS", help="separated by commas; default: all that have statistics"
    )
    which.add_argument("--rows-only", action="store_true", help="count rows only")


def analyze(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, columns: Sequence[str] | None, rows_only: bool
) -> None:
    table = catalog.open().table(name)
    snapshot_id = table.analyze([] if rows_only else columns)
    found = table.statistics()
    if snapshot_id is None or found is None:
        out.result({"snapshot": None}, f"{name} has no snapshot: there is nothing to count")
        return
    members: dict[str, Any] = {"snapshot": snapshot_id, "rows": found.merged_record_count, "columns": found.columns}
    counted = f"{found.merged_record_count:,} rows and {len(found.columns)} columns of {name} were analyzed"
    out.result(members, f"{counted}: snapshot {snapshot_id}, {name}$statistics")
