"""Generates the rows for all contenders: the same on every machine, generated once and kept as Arrow files.

This module also runs in the Python interpreter of peers, with another version of Arrow.

    w1    6 columns, BIGINT key; a fifth of the keys of each commit are in earlier commits
    w2    21 columns: an INT key and twenty unique texts of ten characters
    w3    6 columns; ten runs, whose keys are drawn from four times as many keys, so that all runs overlap
    w5    6 columns; half of the keys of each commit are in w5-base (ten commits of the same size), the others are new
    w6    6 columns; keys drawn from five times as many, also repeated in a commit; half of all values are null
    wide  as w3, with a long text, so that the rows of a run fill a row group of 128 MiB

The key is the first column, and NOT NULL. Only w6 has null values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

COMMITS: Final = 10
_ROWS_PER_COMMIT: Final = {
    "w1": 100_000,
    "w2": 100_000,
    "w3": 500_000,
    "w5": 100_000,
    "w5-base": 100_000,
    "w6": 200_000,
    "wide": 500_000,
}
_SEEDS: Final = {"w1": 1, "w2": 2, "w3": 3, "w5": 5, "w5-base": 5, "w6": 6, "wide": 4}
_SPREAD: Final = 0x9E3779B97F4A7C15  # odd, so it is a bijection on 48 bits
_DAYS_MS: Final = 10**10
_WIDE_TEXT_BYTES: Final = 256  # random hex digits, which compress to half of their size

Keys = NDArray[np.int64]


def generate(workload: str, scale: float) -> Iterator[pa.Table]:
    """Yield the rows of each commit.

    scale: share of the published size.
    """
    return _MAKERS[workload](np.random.default_rng(_SEEDS[workload]), rows_per_commit(workload, scale))


def rows_per_commit(workload: str, scale: float) -> int:
    return int(_ROWS_PER_COMMIT[workload] * scale)


def row_files(workload: str, folder: Path, scale: float) -> list[str]:
    """Return the paths of Arrow files, one per commit. Creates them if they are absent."""
    paths = [folder / f"{workload}-{scale:g}-{i}.arrow" for i in range(COMMITS)]
    if not all(path.exists() for path in paths):
        folder.mkdir(parents=True, exist_ok=True)
        for path, rows in zip(paths, generate(workload, scale), strict=True):
            written(rows, path)
    return [str(path) for path in paths]


def written(rows: pa.Table, path: Path) -> str:
    """Write the rows to an Arrow file, atomically. Returns its path."""
    unfinished = path.with_suffix(".tmp")
    with pa.OSFile(str(unfinished), "wb") as sink, pa.ipc.new_file(sink, rows.schema) as writer:
        writer.write_table(rows)
    unfinished.rename(path)
    return str(path)


def commits_over(base_rows: int, rows: int, commits: int, *, of_range: bool = False) -> Iterator[pa.Table]:
    """Yield the rows of commits over a w5-base of another size than that of `w5`.

    base_rows: number of rows in w5-base. Half of the rows of each commit have its keys.
    rows: number of rows of each commit.
    of_range: the keys of a commit are neighbours; otherwise they come from all over the table.
    """
    rng = np.random.default_rng(_SEEDS["w5"])
    known, new = _known_and_new_keys(rng, base_rows // COMMITS)
    if of_range:
        known.sort()
        for start in rng.integers(0, len(known) - rows, commits).tolist():
            old = known[start : start + rows // 2]
            keys = np.unique(np.concatenate([old, old + 1]))
            rng.shuffle(keys)
            yield _six_columns(rng, keys)
        return
    for number in range(commits):
        added = new[number * (rows // 2) : (number + 1) * (rows // 2)]
        keys = np.concatenate([rng.choice(known, rows - len(added), replace=False), added])
        rng.shuffle(keys)
        yield _six_columns(rng, keys)


def keys_of(numbers: Keys) -> Keys:
    """Map each number below 2^48 to a different key, spread over the whole range, without a list of used keys."""
    mixed: Keys = (numbers.astype(np.uint64) * np.uint64(_SPREAD) & np.uint64((1 << 48) - 1)).astype(np.int64)
    return mixed


def with_keys(rng: np.random.Generator, keys: Keys) -> pa.Table:
    """Return rows with these keys and the columns of w1."""
    return _six_columns(rng, keys)


def load(path: str, key: Sequence[str], *, key_as_text: bool = False, rows_max: int | None = None) -> pa.Table:
    """Load the rows of a commit into memory, as one chunk. The columns of `key` become NOT NULL.

    key_as_text: the first key column becomes a text.
    """
    with pa.OSFile(path) as file:
        rows = pa.ipc.open_file(file).read_all()
    rows = rows if rows_max is None else rows.slice(0, rows_max)
    if key_as_text:
        position = rows.schema.get_field_index(key[0])
        texts = pc.binary_join_element_wise("order", rows.column(position).cast(pa.string()), "-")
        rows = rows.set_column(position, key[0], texts)
    rows = rows.cast(pa.schema([field.with_nullable(field.name not in key) for field in rows.schema]))
    return rows.combine_chunks()


def _overlapping_commits(rng: np.random.Generator, count: int) -> Iterator[Keys]:
    """Yield the keys of each commit. A fifth of them are in earlier commits."""
    fresh = _unique_keys(rng, COMMITS * count)
    used = 0
    for commit in range(COMMITS):
        old = count // 5 if commit else 0
        new = fresh[used : used + count - old]
        keys = np.concatenate([rng.choice(fresh[:used], old, replace=False), new]) if old else new.copy()
        used += count - old
        rng.shuffle(keys)
        yield keys


def _unique_keys(rng: np.random.Generator, count: int) -> Keys:
    keys = np.unique(rng.integers(0, 1 << 48, int(count * 1.01)))
    rng.shuffle(keys)
    return keys[:count]


def _six_columns(
    rng: np.random.Generator, keys: Keys, more: Callable[[int], dict[str, Any]] = lambda _: {}
) -> pa.Table:
    count = len(keys)
    columns = {
        "id": pa.array(keys),
        "name": pc.binary_join_element_wise("user", pa.array(keys % 50_000).cast(pa.string()), "-"),
        "amount": _decimals(rng, count),
        "qty": pa.array(rng.integers(0, 1000, count).astype("i4")),
        "ts": pa.array(1_700_000_000_000 + rng.integers(0, _DAYS_MS, count), pa.timestamp("ms")),
        "note": pc.binary_join_element_wise("note ", _hex_texts(rng, count, 16), " of order", ""),
        **more(count),
    }
    return _with_key(pa.table(columns))


def _decimals(rng: np.random.Generator, count: int) -> pa.Array:
    """Return random values of DECIMAL(18,2), built from their raw digits."""
    halves = np.zeros((count, 2), np.int64)
    halves[:, 0] = rng.integers(0, 10**9, count)
    return pa.Array.from_buffers(pa.decimal128(18, 2), count, [None, pa.py_buffer(halves.tobytes())])


def _hex_texts(rng: np.random.Generator, count: int, length: int) -> pa.Array:
    """Return `count` random texts."""
    offsets = np.arange(0, (count + 1) * length, length, dtype=np.int32)
    digits = rng.bytes(count * length // 2).hex().encode()
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(digits))


def _with_key(rows: pa.Table) -> pa.Table:
    return rows.cast(pa.schema([rows.schema.field(0).with_nullable(False), *list(rows.schema)[1:]]))


def _w1(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    for keys in _overlapping_commits(rng, count):
        yield _six_columns(rng, keys)


def _w2(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    for keys in _overlapping_commits(rng, count):
        texts = {f"f{i + 1}": _hex_texts(rng, count, 10) for i in range(20)}
        yield _with_key(pa.table({"k": pa.array((keys & 0x7FFFFFFF).astype("i4")), **texts}))


def _w3(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    space = _unique_keys(rng, 4 * count)
    for _ in range(COMMITS):
        yield _six_columns(rng, rng.choice(space, count, replace=False))


def _w5_base(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    known, _ = _known_and_new_keys(rng, count)
    for keys in np.split(known, COMMITS):
        yield _six_columns(rng, keys)


def _w5(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    known, new = _known_and_new_keys(rng, count)
    for added in np.array_split(new, COMMITS):
        keys = np.concatenate([rng.choice(known, count - len(added), replace=False), added])
        rng.shuffle(keys)
        yield _six_columns(rng, keys)


def _known_and_new_keys(rng: np.random.Generator, count: int) -> tuple[Keys, Keys]:
    keys = _unique_keys(rng, COMMITS * count + COMMITS * (count // 2))
    return keys[: COMMITS * count], keys[COMMITS * count :]


def _w6(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    space = _unique_keys(rng, 5 * count)
    for _ in range(COMMITS):
        rows = _six_columns(rng, rng.choice(space, count))
        columns = [pc.if_else(pa.array(rng.random(count) < 0.5), None, column) for column in rows.columns[1:]]
        yield pa.Table.from_arrays([rows.column(0), *columns], schema=rows.schema)


def _wide(rng: np.random.Generator, count: int) -> Iterator[pa.Table]:
    space = _unique_keys(rng, 4 * count)
    for _ in range(COMMITS):
        keys = rng.choice(space, count, replace=False)
        yield _six_columns(rng, keys, lambda n: {"text": _hex_texts(rng, n, 2 * _WIDE_TEXT_BYTES)})


_MAKERS: Final[dict[str, Callable[[np.random.Generator, int], Iterator[pa.Table]]]] = {
    "w1": _w1,
    "w2": _w2,
    "w3": _w3,
    "w5": _w5,
    "w5-base": _w5_base,
    "w6": _w6,
    "wide": _wide,
}
