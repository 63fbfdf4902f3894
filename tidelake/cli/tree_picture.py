"""How the files of a primary-key table lie in levels: its buckets as trees."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from compaction.levels import Levels
from storage.binary_row import decode_rows
from storage.clock import epoch_ms
from storage.files.data_file import DataFileMeta
from storage.snapshots.manifest_entry import ManifestEntry
from storage.table import TableContext
from tidelake.cli.texts import age_text, cut_text, size_text
from tidelake.plain_values import plain_rows

if TYPE_CHECKING:
    from rich.console import Console

Picture = dict[str, Any]

_TREES_SHOWN: Final = 3
_RUNS_SHOWN: Final = 12  # of a tree
_BAR_WIDTH: Final = 20
_KEY_WIDTH: Final = 24


def trees_of(
    context: TableContext, entries: Sequence[ManifestEntry], partitions: Mapping[bytes, Picture]
) -> list[Picture]:
    """One a bucket, in their order; runs newest first. None for tables without a primary key.

    youngest_ms, oldest_ms: how long ago files of a run were made.
    """
    if not context.schema.has_primary_key:
        return []
    buckets: dict[tuple[bytes, int], list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        buckets[entry.partition, entry.bucket].append(entry.file)
    now_ms = epoch_ms()
    trees = []
    for (partition, bucket), files in sorted(buckets.items(), key=lambda item: item[0]):
        runs = _runs(context, files)
        trees.append(
            {
                "partition": partitions[partition],
                "bucket": bucket,
                "bytes": sum(file.file_size for file in files),
                "runs": [_run(context, level, of_run, now_ms) for level, of_run in runs],
            }
        )
    return trees


def space_amplification(trees: Sequence[Picture]) -> float | None:
    """Bytes in files for each byte of the oldest runs, which hold every old key once; None where all is on level 0."""
    grown = [tree for tree in trees if tree["runs"][-1]["level"] > 0]
    oldest = sum(tree["runs"][-1]["bytes"] for tree in grown)
    return sum(tree["bytes"] for tree in grown) / oldest if oldest else None


def _runs(context: TableContext, files: Sequence[DataFileMeta]) -> list[tuple[int, Sequence[DataFileMeta]]]:
    types = [field.type for field in context.schema.key_fields]
    try:
        levels = Levels.of(files, types, context.options.num_levels)
    except ValueError:  # a broken tree is shown as it is: every file on its own
        return [(file.level, [file]) for file in sorted(files, key=lambda file: file.level)]
    return [(run.level, run.files) for run in levels.runs]


def _run(context: TableContext, level: int, files: Sequence[DataFileMeta], now_ms: int) -> Picture:
    keys = _keys(context, [files[0].min_key, files[-1].max_key])
    ages = [now_ms - created_ms for file in files if (created_ms := file.created_epoch_ms) is not None]
    return {
        "level": level,
        "files": len(files),
        "rows": sum(file.row_count for file in files),
        "deletes": sum(file.delete_row_count or 0 for file in files),
        "bytes": sum(file.file_size for file in files),
        "min_key": keys[0],
        "max_key": keys[1],
        "youngest_ms": max(0, min(ages)) if ages else None,
        "oldest_ms": max(0, *ages) if ages else None,
    }


def _keys(context: TableContext, rows: Sequence[bytes]) -> list[Picture]:
    fields = context.schema.select(context.schema.trimmed_primary_keys)
    return plain_rows(pa.table(decode_rows(rows, [f.type for f in fields]), names=[f.name for f in fields]))


# ---------------------------------------------------------------- for people


def print_trees(console: Console, trees: Sequence[Picture], *, show_all: bool) -> None:
    """Those with the most sorted runs, in the order of partitions; buckets of one run are as good as they get."""
    growing = [tree for tree in trees if len(tree["runs"]) > 1]
    worst = sorted(growing, key=lambda tree: (-len(tree["runs"]), -tree["bytes"]))[:_TREES_SHOWN]
    shown = growing if show_all else [tree for tree in growing if tree in worst]
    for tree in shown:
        _print_tree(console, tree, show_all=show_all)
    if len(growing) > len(shown):
        console.print(f"+ {len(growing) - len(shown):,} more buckets of several sorted runs; --all-buckets draws them")


def _print_tree(console: Console, tree: Picture, *, show_all: bool) -> None:
    from rich.text import Text

    runs = tree["runs"]
    where = " ".join(f"{name}={'null' if value is None else value}" for name, value in tree["partition"].items())
    amplification = space_amplification([tree])
    facts = [
        f"{where} bucket {tree['bucket']}".strip(),
        f"{len(runs)} sorted run{'' if len(runs) == 1 else 's'}",
        size_text(tree["bytes"]),
        "all on level 0" if amplification is None else f"space ×{amplification:.2f}",
    ]
    console.print(Text(" · ".join(facts), style="bold"))
    console.print(_run_grid(runs, _RUNS_SHOWN if not show_all else len(runs)))
    console.print()


def _run_grid(runs: Sequence[Picture], limit: int) -> Any:
    """Newest first. When there are too many, those in the middle are left out: level 0 tells, and so do the oldest."""
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid.grid(padding=(0, 2, 0, 0))
    for number in range(7):
        grid.add_column(justify="right" if number in (2, 3, 4) else "left", no_wrap=True)
    largest = max(run["bytes"] for run in runs)
    head, tail = (len(runs), 0) if len(runs) <= limit else (limit // 2, limit - limit // 2)
    for number, run in enumerate(runs):
        if head <= number < len(runs) - tail:
            if number == head:
                left_out = len(runs) - head - tail
                grid.add_row(Text("…", style="dim"), Text(f"{left_out} more", style="dim"))
            continue
        width = max(1, round(_BAR_WIDTH * run["bytes"] / max(1, largest)))
        grid.add_row(
            Text(f"L{run['level']}", style="cyan"),
            Text("█" * width, style="dim"),
            f"{run['files']:,} file{'' if run['files'] == 1 else 's'}",
            f"{run['rows']:,} row{'' if run['rows'] == 1 else 's'}",
            size_text(run["bytes"]),
            Text(f"[{_key_text(run['min_key'])} … {_key_text(run['max_key'])}]"),
            Text(_ages_text(run), style="dim"),
        )
    return grid


def _key_text(key: Picture) -> str:
    return cut_text(", ".join("null" if value is None else str(value) for value in key.values()), _KEY_WIDTH)


def _ages_text(run: Picture) -> str:
    if run["oldest_ms"] is None:
        return ""
    youngest, oldest = age_text(run["youngest_ms"]), age_text(run["oldest_ms"])
    return f"{oldest} old" if youngest == oldest else f"{youngest} to {oldest} old"
