"""Files of the hash index: the hashes of all keys of a bucket as big-endian int32 values, in any order.

Source: Java `index/HashIndexFile.java`, `utils/IntFileUtils.java`; vectors `dynamic_bucket.json`.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from tidelake.errors import CorruptFile
from tidelake.storage.files.index_file import IndexFileMeta, index_file_path, index_path_of_name
from tidelake.storage.model.format import HASH_INDEX
from tidelake.storage.model.table import TableContext

_ON_DISK: Final = np.dtype(">i4")


def encode_hashes(hashes: NDArray[np.int32]) -> bytes:
    return hashes.astype(_ON_DISK).tobytes()


def decode_hashes(data: bytes, path: str) -> NDArray[np.int32]:
    """Raise CorruptFile."""
    if len(data) % _ON_DISK.itemsize:
        raise CorruptFile(path, "hashes of four bytes each", f"{len(data)} bytes")
    return np.frombuffer(data, _ON_DISK).astype(np.int32)


def read_hash_file(context: TableContext, partition: bytes, bucket: int, file: IndexFileMeta) -> NDArray[np.int32]:
    """Read the hashes. Raises CorruptFile, also if the file does not exist."""
    path = index_file_path(context, partition, bucket, file)
    try:
        data = context.io.read(path)
    except FileNotFoundError:
        raise CorruptFile(path, "an index file that a snapshot references", "no file") from None
    if len(data) != file.file_size:
        raise CorruptFile(path, f"{file.file_size} bytes", f"{len(data)} bytes")
    return decode_hashes(data, path)


def write_hash_file(
    context: TableContext, partition: bytes, bucket: int, name: str, hashes: NDArray[np.int32]
) -> IndexFileMeta:
    """Write a durable file. No snapshot names it yet."""
    data = encode_hashes(hashes)
    with context.io.open_output(index_path_of_name(context, partition, bucket, name)) as output:
        output.stream.write(data)
    return IndexFileMeta(HASH_INDEX, name, len(data), len(hashes))
