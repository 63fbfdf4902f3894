"""Writes the recorded orders as a long change log: the capture is repeated, and each record has a different offset."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
import zstandard

from tests.support.cases import raw_lines
from tests.support.recorded_truth import RecordedTable, own_recorded

ORDERS: Final[RecordedTable] = own_recorded("orders-100k/orders")
RECORDS: Final = 109_551  # number of records in the capture
CHANGES: Final = 100_000  # of these; the rest are tombstones
_SAY_SCHEMA: Final = """\
import sys
from benchmarks.change_log import ORDERS
sys.stdout.buffer.write(ORDERS.schema.serialize())
"""
_HEAD: Final = re.compile(rb'^\{"topic":"[^"]+","partition":(\d+),"offset":(\d+),')


def orders_schema() -> pa.Schema:
    """Return `ORDERS.schema`, computed in another process.

    All records are read for it, which would increase the peak memory of a job.
    """
    said = subprocess.run([sys.executable, "-c", _SAY_SCHEMA], stdout=subprocess.PIPE, check=True).stdout
    return pa.ipc.read_schema(pa.BufferReader(said))


def write_change_log(folder: Path, passes: int, *, compressed: bool = False, files_per_pass: int = 1) -> None:
    """Create the files if they are absent. From the second pass on, the rows of the records exist already."""
    lines = [line for path in ORDERS.files for line in raw_lines(path)]
    lengths = Counter(_partition(line) for line in lines)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(passes * files_per_pass):
        done, part = divmod(number, files_per_pass)
        path = folder / f"{number:03}.jsonl{'.zst' if compressed else ''}"
        if not path.exists():
            begin, end = (len(lines) * edge // files_per_pass for edge in (part, part + 1))
            text = b"".join(_moved(lines[begin:end], lengths, done))
            unfinished = path.with_suffix(".tmp")
            unfinished.write_bytes(zstandard.compress(text) if compressed else text)
            unfinished.rename(path)


def _partition(line: bytes) -> bytes:
    head = _HEAD.match(line)
    assert head is not None
    return head[1]


def _moved(lines: Sequence[bytes], lengths: Counter[bytes], number: int) -> Iterator[bytes]:
    """Yield the lines of pass `number`: their offsets continue after those of the previous pass."""
    for line in lines:
        head = _HEAD.match(line)
        assert head is not None
        start, end = head.span(2)
        yield b"%s%d%s\n" % (line[:start], int(head[2]) + number * lengths[head[1]], line[end:])
