"""The interface of data file formats.

Rows are written and read as Arrow batches. Their columns have the in-memory form of their types
(`tidelake.storage.model.types`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput, CorruptFile, TidelakeError, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.files.stats_collection import Bounds, ColumnMinMax
from tidelake.storage.model.types import ArrayType, DataField, DataType, MapType, MultisetType, RowType, VectorType

T = TypeVar("T")
Edges: TypeAlias = NDArray[np.intp]

BATCH_BYTES_MAX: Final = 128 * 1024 * 1024  # far below 2 GiB, the limit of the offsets of a text column
# From this size on, even one copy of a row matters. Such rows get small row groups, because Arrow processes a row group
# as a whole. They are merged as runs of one row each, and wait for room in the memory budget.
LARGE_ROW_BYTES: Final = 4 * 1024 * 1024

# Decoding a large row takes up to three times its size, and encoding takes twice its size. So flushes, compactions and
# readers take turns.
one_large_row_group: Final = env.Lock()


@dataclass(frozen=True, slots=True)
class FormatWriterSettings:
    """The settings of a writer.

    compression: the codec, with its name in table options.
    zstd_level: the level, if the codec is zstd.
    block_size_bytes: the size of a row group or stripe; None means the default.
    block_rows: the number of rows of a row group, if block_size_bytes is the default and the format supports it; None
        means the default.
    options: the options of the format, with their prefix (`parquet.page.size`).
    bounds_for: top-level columns of atomic types. The writer must return their smallest and largest values at the end.
    target_bytes: the size at which the file will be closed. A writer that buffers must have measured its estimate
        before.
    stored_ratio: the ratio of an earlier writer of such files (`FormatWriter.stored_ratio`).
    bounds_length: how many characters or bytes the bounds of texts and bytes need; None means the whole values.
    """

    compression: str = "zstd"
    zstd_level: int = 1
    block_size_bytes: int | None = None
    block_rows: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    bounds_for: frozenset[str] = frozenset()
    target_bytes: int | None = None
    stored_ratio: float | None = None
    bounds_length: int | None = None


class FormatWriter(Protocol):
    """A writer of one file. After an exception only `abort` may be called."""

    @property
    def written_bytes(self) -> int:
        """The approximate size of the file if it were closed now."""
        ...

    @property
    def stored_ratio(self) -> float | None:
        """Bytes in the file per byte of rows in memory; None until rows are in the file."""
        ...

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, with the columns in file order. Raises BadInput, with the column, for unsupported values."""
        ...

    def close(self) -> ColumnMinMax:
        """Finish the file; the stream stays open. Returns the bounds of `FormatWriterSettings.bounds_for`."""
        ...

    def abort(self) -> None:
        """Abandon the file. Nothing more is written."""
        ...


class SmallFiles(Protocol):
    """Files of a few rows each, made from one batch by `FileFormat.small_files`."""

    def file(self, number: int) -> bytes:
        """Return the content of a file."""
        ...


_ERROR_NUMBER: Final = re.compile(r"\[errno (\d+)\]", re.IGNORECASE)

ChunkFilter: TypeAlias = Callable[[Bounds], NDArray[np.bool_] | None]
"""Returns which parts (row groups) of a file may contain matching rows, by the bounds of its stored columns.
None means that all parts must be read. A format without bounds ignores the filter."""


class WantedRows(Protocol):
    """The rows that a reader of a file needs. The format may leave out others, and says so before the first batch."""

    def of_parts(self) -> NDArray[np.bool_] | None:
        """Return which rows are wanted of the parts that the chunk filter selected; None means all."""
        ...

    def returned(self, rows: NDArray[np.bool_]) -> None:
        """Note which rows of these parts the format returns: at least the wanted ones."""
        ...


class FileFormat(Protocol):
    def open_writer(
        self, stream: pa.NativeFile, fields: Sequence[DataField], settings: FormatWriterSettings
    ) -> FormatWriter:
        """Open a writer. Raises UnsupportedFeature for types and codecs that the format can't write.

        fields: the columns of the file, in order.
        """
        ...

    def small_files(
        self, rows: pa.RecordBatch, fields: Sequence[DataField], settings: FormatWriterSettings, edges: Edges
    ) -> SmallFiles | None:
        """Encode n files of a few rows each. None if the format can only write each file separately.

        Raises the errors of `open_writer` and `FormatWriter.write`.

        edges (n + 1,): the first row of each file, then the end of the last file.
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
        wanted_rows: WantedRows | None = None,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the wanted columns in batches, which are never empty. A column that the file doesn't have is null.

        A batch without columns still has a number of rows. The file is streamed: about one batch is in memory. `source`
        is closed at the end, or when the iterator is closed.

        path: the path of the file, for error messages.
        wanted: the columns, with their names and types when the file was written.
        batch_rows: the maximum number of rows of a batch.
        batch_bytes: the approximate maximum size of a batch in memory, estimated from the first rows.
        chunk_filter: selects the parts of the file to read.
        wanted_rows: the rows of these parts that are needed; None means all.
        use_threads: decode the columns of a local file side by side, if the format can.

        Raises CorruptFile. Raises UnsupportedFeature for values that the in-memory form can't represent.
        """
        ...

    def chunk_bounds(self, source: pa.NativeFile, path: str, wanted: Sequence[DataField]) -> Bounds | None:
        """Return the bounds of the wanted columns, by name, in the parts of the file that a `chunk_filter` can select.

        None if the format has no bounds. Closes `source`. Raises CorruptFile.
        """
        ...


def format_option(settings: FormatWriterSettings, key: str, parse: Callable[[str], T], default: T) -> T:
    """Return an option of the format, by its full key. Raises BadInput, with option and value."""
    text = settings.options.get(key)
    if text is None:
        return default
    try:
        return parse(text)
    except (BadInput, ValueError) as e:
        raise BadInput(f"option {key} = {text!r}: {e}") from None


@contextmanager
def corruption(path: str, expected: str, offset: Callable[[], int] | None = None) -> Iterator[None]:
    """Convert the errors of decoders to CorruptFile.

    Tidelake's own errors, errors of the disk or the store, and a lack of memory are not converted.

    offset: returns how far the file was read.
    """
    try:
        yield
    except (TidelakeError, MemoryError, pa.lib.ArrowCancelled):
        raise
    except Exception as e:
        # Arrow reports bad compression and bad footers as a plain OSError. Errors of a disk or a store have a number or
        # a subclass.
        if isinstance(e, OSError) and (type(e) is not OSError or e.errno is not None):
            raise
        if number := _ERROR_NUMBER.search(str(e)):  # the ORC library keeps only the text
            raise OSError(int(number[1]), os.strerror(int(number[1])), path) from e
        raise CorruptFile(path, expected, _message_of(e), None if offset is None else offset()) from e


def _message_of(error: Exception) -> str:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    return first_line if isinstance(error, OSError | pa.ArrowException) else f"{type(error).__name__}: {first_line}"


def batch_of(columns: Sequence[pa.Array], num_rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Make a batch that has its number of rows even without columns."""
    if columns:
        return pa.RecordBatch.from_arrays(columns, schema=schema)
    return pa.RecordBatch.from_struct_array(pa.array([{}] * num_rows, pa.struct([])))


def parts_of(data_type: DataType) -> Iterator[DataType]:
    """Yield the type and all types nested in it."""
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
    """Raise UnsupportedFeature, with the column, if the format has no form for a type."""
    for f in fields:
        for part in parts_of(f.type):
            if unsupported(part):
                raise UnsupportedFeature(
                    f"{part} in {format_name} files",
                    f"the format has no representation of column {f.name!r} that Paimon's readers know",
                    "Set file.format = parquet",
                )
