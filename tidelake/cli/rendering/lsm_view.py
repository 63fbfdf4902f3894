"""The LSM view of a primary-key table: the levels and sorted runs of each bucket."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tidelake.cli.formatting import age_text, cut_text, partition_text, size_text, value_text
from tidelake.compaction.merge_tree.levels import Levels
from tidelake.storage.base.clock import epoch_ms
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucket_id import BucketId
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.json_values import json_rows

if TYPE_CHECKING:
    from rich.console import Console

LsmTree = dict[str, Any]

_TREES_SHOWN: Final = 3
_RUNS_SHOWN: Final = 12  # of each tree
_GAP: Final = 2  # cells between columns
_BAR_WIDTHS: Final = (4, 20)  # minimum and maximum; with less room than the minimum no bar is drawn
_KEYS_WIDTH_MIN: Final = 9  # "[a… … b…]"
_KEY_WIDTH_MAX: Final = 60


def lsm_trees(
    context: TableContext, entries: Sequence[ManifestEntry], partitions: Mapping[bytes, LsmTree]
) -> list[LsmTree]:
    """Return one tree per bucket, in their order, with the newest run first. None for tables without a primary key.

    The members youngest_ms and oldest_ms are the ages of a run's files.
    """
    if not context.schema.has_primary_key:
        return []
    buckets: dict[BucketId, list[DataFileMeta]] = defaultdict(list)
    for entry in entries:
        buckets[entry.bucket_id].append(entry.file)
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


def space_amplification(trees: Sequence[LsmTree]) -> float | None:
    """Return the bytes in files for each byte of the oldest runs, which contain each old key once.

    None if all files are on level 0.
    """
    grown = [tree for tree in trees if tree["runs"][-1]["level"] > 0]
    oldest = sum(tree["runs"][-1]["bytes"] for tree in grown)
    return sum(tree["bytes"] for tree in grown) / oldest if oldest else None


def _runs(context: TableContext, files: Sequence[DataFileMeta]) -> list[tuple[int, Sequence[DataFileMeta]]]:
    types = [field.type for field in context.schema.key_fields]
    try:
        levels = Levels.of(files, types, context.options.num_levels)
    except ValueError:  # a damaged tree is shown as it is, with one run per file
        return [(file.level, [file]) for file in sorted(files, key=lambda file: file.level)]
    return [(run.level, run.files) for run in levels.runs]


def _run(context: TableContext, level: int, files: Sequence[DataFileMeta], now_ms: int) -> LsmTree:
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


def _keys(context: TableContext, rows: Sequence[bytes]) -> list[LsmTree]:
    fields = context.schema.select(context.schema.trimmed_primary_keys)
    return json_rows(pa.table(decode_rows(rows, [f.type for f in fields]), names=[f.name for f in fields]))


# ---------------------------------------------------------------- for people


def print_lsm_trees(console: Console, trees: Sequence[LsmTree], *, show_all: bool) -> None:
    """Print the trees with the most sorted runs, sorted by partition. Buckets with one run are left out."""
    growing = [tree for tree in trees if len(tree["runs"]) > 1]
    worst = sorted(growing, key=lambda tree: (-len(tree["runs"]), -tree["bytes"]))[:_TREES_SHOWN]
    shown = growing if show_all else [tree for tree in growing if tree in worst]
    for tree in shown:
        _print_tree(console, tree, show_all=show_all)
    if len(growing) > len(shown):
        console.print(
            f"+ {len(growing) - len(shown):,} more buckets with several sorted runs; --all-buckets shows them"
        )


def _print_tree(console: Console, tree: LsmTree, *, show_all: bool) -> None:
    from rich.text import Text

    runs = tree["runs"]
    amplification = space_amplification([tree])
    facts = [
        f"{partition_text(tree['partition'])} bucket {tree['bucket']}".strip(),
        f"{len(runs)} sorted run{'' if len(runs) == 1 else 's'}",
        size_text(tree["bytes"]),
        "all on level 0" if amplification is None else f"space ×{amplification:.2f}",
    ]
    console.print(Text(" · ".join(facts), style="bold"))
    console.print(_run_grid(runs, _RUNS_SHOWN if not show_all else len(runs), console.width))
    console.print()


def _run_grid(runs: Sequence[LsmTree], limit: int, width: int) -> Any:
    """Return a tree's runs, newest first.

    If there are too many, those in the middle are left out, as level 0 and the oldest runs are the most important.

    width: cells of the console. Bars and keys share the room that the facts leave. If the facts alone are too wide,
        they are wrapped.
    """
    from rich.cells import cell_len
    from rich.table import Table as Grid
    from rich.text import Text

    head, tail = (len(runs), 0) if len(runs) <= limit else (limit // 2, limit - limit // 2)
    shown = [*runs[:head], *runs[len(runs) - tail :]]
    facts = [_facts(run) for run in shown]
    keys = [(_key_text(run["min_key"]), _key_text(run["max_key"])) for run in shown]
    left = width - sum(max(map(len, column)) + _GAP for column in zip(*facts, strict=True))
    bar_width, keys_width = _shares(left, max(cell_len(_keys_text(*pair)) for pair in keys))

    grid = Grid.grid(padding=(0, _GAP, 0, 0))
    numbers_at = 2 if bar_width else 1
    for number in range(5 + (bar_width > 0) + (keys_width > 0)):
        is_number = numbers_at <= number < numbers_at + 3
        grid.add_column(justify="right" if is_number else "left", overflow="fold")
    largest = max(run["bytes"] for run in runs)
    for number, (run, (level, files, rows, size, ages), pair) in enumerate(zip(shown, facts, keys, strict=True)):
        if number == head:
            grid.add_row(Text("…", style="dim"), Text(f"{len(runs) - len(shown)} more", style="dim"))
        bar = Text("█" * max(1, round(bar_width * run["bytes"] / max(1, largest))), style="dim")
        bar_cells = [bar] if bar_width else []
        key_cells = [Text(_keys_text(*pair, keys_width))] if keys_width else []
        grid.add_row(Text(level, style="cyan"), *bar_cells, files, rows, size, *key_cells, Text(ages, style="dim"))
    return grid


def _facts(run: LsmTree) -> tuple[str, str, str, str, str]:
    """Return the texts that are never cut: level, files, rows, size, ages."""
    return (
        f"L{run['level']}",
        f"{run['files']:,} file{'' if run['files'] == 1 else 's'}",
        f"{run['rows']:,} row{'' if run['rows'] == 1 else 's'}",
        size_text(run["bytes"]),
        _ages_text(run),
    )


def _shares(left: int, keys_wanted: int) -> tuple[int, int]:
    """Return the widths of the columns for bars and keys, which share the remaining cells; 0 for a column without room.

    Bars are dropped first, as they show only sizes.
    """
    least, most = _BAR_WIDTHS
    bar = max(least, min(most, left - _GAP - keys_wanted))
    if (keys := left - _GAP - bar) >= min(keys_wanted, _KEYS_WIDTH_MIN):
        return bar, keys
    return 0, left if left >= min(keys_wanted, _KEYS_WIDTH_MIN) else 0


def _key_text(key: LsmTree) -> str:
    return cut_text(", ".join(map(value_text, key.values())), _KEY_WIDTH_MAX)


def _keys_text(first: str, last: str, width: int = sys.maxsize) -> str:
    """Return both keys, cut to half of the width, or to the room that the other one leaves."""
    from rich.cells import cell_len

    room = width - len("[ … ]")
    first_cells, last_cells = cell_len(first), cell_len(last)
    first = cut_text(first, max(room // 2, room - last_cells))
    last = cut_text(last, max(room - room // 2, room - first_cells))
    return f"[{first} … {last}]"


def _ages_text(run: LsmTree) -> str:
    if run["oldest_ms"] is None:
        return ""
    youngest, oldest = age_text(run["youngest_ms"]), age_text(run["oldest_ms"])
    return f"{oldest} old" if youngest == oldest else f"{youngest} to {oldest} old"
