"""`tidelake table bootstrap`: writes a dump into an empty table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelake.cli.arguments import CatalogAddress, Commands, table_command
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

    from tidelake.bootstrap import Bootstrap

_BATCH_ROWS: Final = 65_536


def add_bootstrap(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "bootstrap",
        bootstrap,
        "write a dump into an empty table with a primary key, in one snapshot",
        "Rows are sorted, on disk as far as they exceed write-buffer-size, and written once, to the highest\n"
        'level, without compaction. Columns are matched by name. In CSV, an empty field is null, "" an empty text.',
        example="tidelake table bootstrap shop.orders -w lake --from dump/*.parquet",
    )
    parser.add_argument(
        "--from",
        dest="patterns",
        nargs="+",
        required=True,
        metavar="FILE",
        help="Parquet files, or CSV files with a header: 'dump/*.parquet'",
    )


def bootstrap(out: CommandOutput, *, name: str, catalog: CatalogAddress, patterns: Sequence[str]) -> None:
    from tidelake.bootstrap import Bootstrap
    from tidelake.one_commit import commit_user_of
    from tidelake.storage.base.progress import counted

    table = catalog.open().table(name)
    files = _files(patterns)
    rows = 0
    with (
        Bootstrap(table.context, commit_user_of(table.context, None)) as first,
        counted("reading", sum(file.stat().st_size for file in files), "bytes") as advance,
    ):
        for file in files:
            rows += _write(first, file, table.schema)
            advance(file.stat().st_size)
        snapshot_id = first.commit()
    if out.is_json:
        out.document({"files": len(files), "rows": rows, "snapshot": snapshot_id})
    elif snapshot_id is None:
        out.text(f"the files have no rows: nothing was written to {table.name}")
    else:
        out.text(f"{rows:,} row{'' if rows == 1 else 's'} read into snapshot {snapshot_id} of {table.name}")


def _files(patterns: Sequence[str]) -> list[Path]:
    """Return the files of the patterns, each once. Raises BadInput for a pattern without files, and other files."""
    import glob

    found: dict[Path, None] = {}
    for pattern in patterns:
        # A file may be named like a pattern.
        names = [pattern] if Path(pattern).is_file() else sorted(glob.glob(pattern))
        files = [Path(name) for name in names if Path(name).is_file()]
        if not files:
            raise BadInput(f"--from {pattern!r} names no file; give the path of a Parquet or CSV file, or a pattern")
        found |= dict.fromkeys(files)
    for file in found:
        if file.suffix not in (".parquet", ".csv"):
            raise BadInput(
                f"--from: {file} is neither .parquet nor .csv; rename it, or read it in Python and pass the rows to "
                "table.bootstrap()"
            )
    return list(found)


def _write(first: Bootstrap, file: Path, columns: pa.Schema) -> int:
    """Write the rows of a file, and return their number. An error names the file."""
    import pyarrow as pa

    rows = 0
    try:
        for batch in _read_parquet(file) if file.suffix == ".parquet" else _read_csv(file, columns):
            first.write(batch)
            rows += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise BadInput(f"{file} can't be read: {str(error).splitlines()[0]}. Nothing was written") from None
    except BadInput as error:
        raise BadInput(f"{file}: {error}") from None
    return rows


def _read_parquet(file: Path) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        yield opened.schema_arrow.remove_metadata().empty_table().combine_chunks()  # columns that don't fit come first
        yield from opened.iter_batches(_BATCH_ROWS)


def _read_csv(file: Path, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows, with the types of the table's columns: a dump has no types."""
    from pyarrow import csv

    convert = csv.ConvertOptions(
        column_types=columns,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        true_values=["true", "t", "1"],
        false_values=["false", "f", "0"],
    )
    with csv.open_csv(file, parse_options=csv.ParseOptions(newlines_in_values=True), convert_options=convert) as reader:
        yield from reader
