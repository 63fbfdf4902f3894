"""Iceberg metadata in tests: all of it as plain values, and PyIceberg as a reader."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
from pyiceberg.table import StaticTable

from tests.support.conformance import record

Json = Any
DELETED = 2


def newest(metadata: Path) -> Path:
    """The metadata file that the hint names."""
    return metadata / f"v{(metadata / 'version-hint.text').read_text()}.metadata.json"


def pyiceberg_table(metadata: Path) -> StaticTable:
    """metadata: the directory."""
    return StaticTable.from_metadata(str(newest(metadata)))


def iceberg_rows(metadata: Path, **scan: Any) -> pa.Table:
    """The rows that PyIceberg reads from the newest metadata."""
    database = metadata.parent.parent
    record("PyIceberg", database.parent, f"{database.name.removesuffix('.db')}.{metadata.parent.name}")
    return pyiceberg_table(metadata).scan(**scan).to_arrow()


def contents(metadata_file: Path) -> dict[str, Json]:
    """All that a metadata file says, directly and through its manifests, without what differs between any two writers.

    Manifest lists are found by their names beside the metadata file, so the directory may have been moved.
    """
    found: dict[str, Json] = json.loads(metadata_file.read_text())
    for member in ("table-uuid", "last-updated-ms"):
        found.pop(member)
    for snapshot in found["snapshots"]:
        snapshot["summary"].pop("paimon-commit-identity", None)
        snapshot.pop("timestamp-ms")  # Java 2.0.0 has its own clock here, later releases the time of the commit
        path = metadata_file.parent / Path(snapshot.pop("manifest-list")).name
        snapshot["manifests"] = [_manifest(meta, metadata_file.parent) for meta in _records(path)]
    return found


def live_files(metadata_file: Path) -> list[dict[str, Json]]:
    """The data files and deletion vectors of the newest snapshot, without row ids and the places of the vectors."""
    newest_snapshot = contents(metadata_file)["snapshots"][-1]
    live = [e for meta in newest_snapshot["manifests"] for e in meta["entries"] if e["status"] != DELETED]
    files = [e["data_file"] | {"first_row_id": None} for e in live]
    for file in files:
        if file["content"] != 0:
            for name in ("file_path", "file_size_in_bytes", "content_offset", "content_size_in_bytes"):
                file[name] = None
    return sorted(files, key=json.dumps)


def _manifest(meta: Mapping[str, Json], directory: Path) -> dict[str, Json]:
    entries = _records(directory / Path(meta["manifest_path"]).name)
    ours = {name: value for name, value in meta.items() if name not in ("manifest_path", "manifest_length")}
    return ours | {"entries": sorted(map(_entry, entries), key=json.dumps)}


def _entry(entry: Mapping[str, Json]) -> dict[str, Json]:
    file = {name: _plain(value) for name, value in entry["data_file"].items()}
    for name in ("null_value_counts", "lower_bounds", "upper_bounds"):
        if file[name] is not None:
            file[name] = {pair["key"]: _plain(pair["value"]) for pair in file[name]}
    return {**entry, "data_file": file}


def _plain(value: Json) -> Json:
    match value:
        case bytes():
            return value.hex()
        case Mapping():
            return {name: _plain(inner) for name, inner in value.items()}
        case None | bool() | int() | float() | str() | list():
            return value
    return str(value)


def _records(path: Path) -> list[dict[str, Json]]:
    with path.open("rb") as file:
        return list(fastavro.reader(file))  # type: ignore[arg-type]


def avro_schema(path: Path) -> Json:
    """The schema in an Avro file, without the documentation that a library adds."""
    with path.open("rb") as file:
        return fastavro.reader(file).writer_schema
