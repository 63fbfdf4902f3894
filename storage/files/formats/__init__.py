"""The data file formats, by their names in table options and file names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tidelake.errors import UnsupportedFeature
from tidelake.storage.files.formats.avro import AvroFormat
from tidelake.storage.files.formats.blob.blob_format import BlobFormat
from tidelake.storage.files.formats.file_format import FileFormat
from tidelake.storage.files.formats.orc import OrcFormat
from tidelake.storage.files.formats.parquet import ParquetFormat
from tidelake.storage.model.format import BLOB_FORMAT

_TABLE_FORMATS: Final[Mapping[str, FileFormat]] = {"parquet": ParquetFormat(), "orc": OrcFormat(), "avro": AvroFormat()}
_FORMATS: Final[Mapping[str, FileFormat]] = {**_TABLE_FORMATS, BLOB_FORMAT: BlobFormat()}


def format_named(name: str) -> FileFormat:
    """Return a format by its name. Raises UnsupportedFeature for unsupported formats (json, csv, lance, …)."""
    try:
        return _FORMATS[name.lower()]
    except KeyError:
        raise UnsupportedFeature(
            f"data files in {name}", "this release can't read or write them", f"Use {', '.join(_TABLE_FORMATS)}"
        ) from None
