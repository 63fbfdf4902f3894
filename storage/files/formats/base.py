"""What a data file format must be able to do.

Rows go in and come out as Arrow batches whose columns have the one in-memory form of their types (`storage.types`).
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from storage.errors import BadInput, CorruptFile, TidelakeError, UnsupportedFeature
from storage.files.column_bounds import Bounds
from storage.files.min_max import ColumnMinMax
from storage.types import ArrayType, DataField, DataType, MapType, MultisetType, RowType, VectorType

T = TypeVar("T")
Edges: TypeAlias = NDArray[np.intp]

BATCH_BYTES_MAX: Final = 128 * 1024 * 1024  # far below 2 GiB, where the offsets of a column of texts end
LARGE_ROW_BYTES: Final = 4 * 1024 * 1024  # Arrow encodes and decodes a row group of such rows as a whole: few to one

# Decoding a large row takes up to three times its size, encoding it twice: flush, compaction and reader take turns.
one_large_row_group: Final = threading.Lock()


@dataclass(frozen=True, slots=True)
class FormatWriterSettings:
    """compression: the codec as table options spell it.
    block_size_bytes: of a row group or stripe, None: the default.
    block_rows: that close a row group, where block_size_bytes is the default and the format takes a number of rows;
        None: the default.

    options: those meant for the format, with their prefix (`parquet.page.size`).
    bounds_for: top-level columns of atomic types whose smallest and largest value the writer shall know in the end.
    target_bytes: the size at which the file will be closed; a writer that buffers makes sure of its estimate before.
    stored_per_held: what an earlier writer of such files learned (`FormatWriter.stored_per_held`).
    bounds_length: of texts and bytes the first characters, or bytes, are enough; None: they count as a whole.
    """

    compression: str = "zstd"
    zstd_level: int = 1
    block_size_bytes: int | None = None
    block_rows: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    bounds_for: frozenset[str] = frozenset()
    target_bytes: int | None = None
    stored_per_held: float | None = None
    bounds_length: int | None = None


class FormatWriter(Protocol):
    """Writes one file. After an exception only `abort` may be called."""

    @property
    def written_bytes(self) -> int:
        """How large the file would be if it were closed now, about."""
        ...

    @property
    def stored_per_held(self) -> float | None:
        """Bytes in the file for each byte that rows take in memory; None until some are in the file."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Columns in file order. Raises BadInput, naming the column, for values that the format can't hold."""
        ...

    def close(self) -> ColumnMinMax:
        """Finish the file; the stream stays open. Returns the min_max of `FormatWriterSettings.bounds_for`."""
        ...

    def abort(self) -> None:
        """Forget the file; nothing more is written."""
        ...


class SmallFiles(Protocol):
    """Files of a few rows each, out of one batch. Get one from `FileFormat.small_files`."""

    def file(self, number: int) -> bytes:
        """A whole file."""
        ...


_ERROR_NUMBER: Final = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)

ChunkFilter: TypeAlias = Callable[[Bounds], NDArray[np.bool_] | None]
"""Which parts (row groups) of a file may hold rows that are wanted, judged by the bounds of its stored columns.
None: can't tell, read all. A format that knows no bounds ignores it."""


class FileFormat(Protocol):
    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> FormatWriter:
        """fields: the columns of the file, in order. Raises UnsupportedFeature for types and codecs it can't write."""
        ...

    def small_files(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> SmallFiles | None:
        """For n files of a few of these rows each. None: the format writes each by itself. Raises as `open_writer` and
        `FormatWriter.write`.

        edges (n + 1,): where the rows of each file begin; then where those of the last one end.
        """
        ...

    def read(
        self,
        source: pa.NativeFile,
        path: str,
        wanted: Sequence[DataField],
        *,
        batch_rows: int,
        batch_bytes: int = BATCH_BYTES_MAX,
        chunk_filter: ChunkFilter | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The columns `wanted`, named and typed as when the file was written; one that the file lacks is all null.

        Batches of at most batch_rows rows, never empty; a batch of no columns still counts its rows.
        batch_bytes: about what a batch holds in memory at most, estimated by the first rows.
        Streams: holds about a batch, not the file. `path` is for messages. Closes `source` when it is done or given up.
        Raises CorruptFile; UnsupportedFeature for values that the in-memory form can't hold.
        """
        ...

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        """By name, the bounds of the columns `wanted` in the parts of the file that a `chunk_filter` chooses among.
        None: the format knows of none. Closes `source`. Raises CorruptFile.
        """
        ...


def format_option(settings: FormatWriterSettings, key: str, parse: Callable[[str], T], default: T) -> T:
    """An option of the format, by its full key. Raises BadInput naming option and value."""
    text = settings.options.get(key)
    if text is None:
        return default
    try:
        return parse(text)
    except (BadInput, ValueError) as e:
        raise BadInput(f"option {key} = {text!r}: {e}") from None


@contextmanager
def corruption(path: str, expected: str, offset: Callable[[], int] | None = None) -> Iterator[None]:
    """Turns whatever decoders stumble over into CorruptFile. What we refuse ourselves, what the disk or the store says,
    and a lack of memory pass.

    offset: how far the file was read.
    """
    try:
        yield
    except (TidelakeError, MemoryError, pa.lib.ArrowCancelled):
        raise
    except Exception as e:
        # Arrow reports bad compression and bad footers as a bare OSError; a disk's or a store's has a number or a kind.
        if isinstance(e, OSError) and (type(e) is not OSError or e.errno is not None):
            raise
        if number := _ERROR_NUMBER.search(str(e)):  # the ORC library keeps only the text of it
            raise OSError(int(number[1]), os.strerror(int(number[1])), path) from e
        raise CorruptFile(path, expected, _message_of(e), None if offset is None else offset()) from e


def _message_of(error: Exception) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first_line if isinstance(error, OSError | pa.ArrowException) else f"{type(error).__name__}: {first_line}"


def batch_of(columns: Sequence[pa.Array], num_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch that knows its number of rows even without columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))


def parts_of(data_type: DataType) -> Iterator[DataType]:
    """The type itself and all types inside it."""
    yield data_type
    match data_type:
        case RowType():
            inner: tuple[DataType, ...] = tuple(f.type for f in data_type.fields)
        case MapType():
            inner = (data_type.key, data_type.value)
        case ArrayType() | MultisetType() | VectorType():
            inner = (data_type.element,)
        case _:
            inner = ()
    for part in inner:
        yield from parts_of(part)


def refuse_types(fields: Sequence[DataField], unsupported: Callable[[DataType], bool], format_name: str) -> None:
    """Raises UnsupportedFeature, naming the column, when the format has no form for a type."""
    for f in fields:
        for part in parts_of(f.type):
            if unsupported(part):
                raise UnsupportedFeature(
                    f"{part} in {format_name} files",
                    f"the format has no form for column {f.name!r} that Paimon's readers know",
                    "Set file.format = parquet",
                )
