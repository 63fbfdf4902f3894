"""Reads only the file names from manifests, for tables of millions of files.

Names are stored as 64-bit hashes, eight bytes for each file. Two names with the same hash count as one. So a check may
report an unused name as used.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import fastavro
import numpy as np
import xxhash
from numpy.typing import NDArray

from tidelake.errors import CorruptFile
from tidelake.storage.commit.manifests.manifest_entry import entry_from_record
from tidelake.storage.commit.manifests.record_file import format_of_metadata, read_records

Hashes = NDArray[np.uint64]

_NEEDED: Final[dict[str, Any]] = {"_FILE": {"_FILE_NAME": None, "_EXTRA_FILES": None}}


def hashes_of(names: Iterable[str]) -> Hashes:
    return np.fromiter((xxhash.xxh3_64_intdigest(name.encode()) for name in names), np.uint64)


def hashes_of_manifest(data: bytes, path: str, size_bytes: int) -> Hashes:
    """Return the hashes for all entries, ADD and DELETE. Raises CorruptFile.

    path: for error messages.
    size_bytes: the size in the manifest list.
    """
    if format_of_metadata(data) != "avro":
        entries = read_records(data, path, entry_from_record, size_bytes)
        return hashes_of(name for entry in entries for name in (entry.file.file_name, *entry.file.extra_files))
    if len(data) < size_bytes:
        raise CorruptFile(path, f"{size_bytes} bytes", f"only {len(data)}", offset=len(data))
    try:
        return hashes_of(_names(data))
    except Exception as e:  # any error of the decoder
        raise CorruptFile(path, "the records of a manifest", f"{type(e).__name__}: {e}") from e


def _names(data: bytes) -> Iterator[str]:
    """Yield the names. Other fields are skipped during decoding, which halves the time."""
    written = json.loads(fastavro.reader(io.BytesIO(data)).metadata["avro.schema"])
    for record in fastavro.reader(io.BytesIO(data), _only(written, _NEEDED)):
        file: Any = record["_FILE"]  # type: ignore[index,call-overload]
        yield file["_FILE_NAME"]
        yield from file["_EXTRA_FILES"] or ()


def _only(schema: Any, needed: dict[str, Any]) -> Any:
    """Return the schema of a record with only these fields."""
    if isinstance(schema, list):
        return [_only(branch, needed) for branch in schema]
    if not isinstance(schema, dict) or "fields" not in schema:
        return schema
    fields = [
        field if needed[field["name"]] is None else {**field, "type": _only(field["type"], needed[field["name"]])}
        for field in schema["fields"]
        if field["name"] in needed
    ]
    return {**schema, "fields": fields}
