"""A page that plays back what flushes and compactions did to the sorted runs of a table.

`tidelake table show --web` writes it, and the status page of a pipeline links to it.

The page is one file without references to others, so it can be sent. It contains names, keys and statistics of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import BadInput
from tidelake.storage.commit.manifests.entry_columns import columns_of_entries
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.commit.manifests.snapshot_files import delta_entries, live_entries
from tidelake.storage.kinds.system_tables.files import FileStatisticsTexts
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import COMPACTION_REASON_PROPERTY, FileKind
from tidelake.storage.model.snapshots.snapshot import Snapshot
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types.json_values import json_rows
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired

SNAPSHOTS_MAX: Final = 200  # each costs two or three small reads
_DATA: Final = "/*data*/"

Member = dict[str, Any]
_Place = tuple[bytes, int, int, str]  # partition, bucket, level, name: an upgraded file is shown again on its new level


def lsm_page(context: TableContext, snapshots_max: int = SNAPSHOTS_MAX) -> str:
    """Return the page of a primary-key table, as HTML.

    snapshots_max: how many of the newest snapshots can be played back

    Raises BadInput for a table without a primary key, which has no sorted runs, and for one without snapshots.
    """
    if not context.schema.has_primary_key:
        raise BadInput(
            f"{context.name} has no primary key, so it has no sorted runs to draw; without --web, `table show` lists "
            "its files"
        )
    latest = context.snapshots.latest()
    if latest is None:
        raise BadInput(f"{context.name} has no snapshot yet; write rows first")
    data = msgspec.json.encode(_data(context, latest, snapshots_max)).decode()
    template = files(__package__).joinpath("lsm_page.html").read_text(encoding="utf-8")
    return template.replace(_DATA, data.replace("<", "\\u003c"))  # so that no text in it ends the script


def _data(context: TableContext, latest: Snapshot, snapshots_max: int) -> Member:
    history = _History(context, list(islice(context.snapshots.backwards_from(latest), snapshots_max))[::-1])
    entries = list(history.entries.values())
    numbers = {place: number for number, place in enumerate(history.entries)}
    buckets = {bucket_id: number for number, bucket_id in enumerate(sorted({entry.bucket_id for entry in entries}))}
    keys = _Keys.of(context, entries)
    columns = columns_of_entries(entries)
    statistics = FileStatisticsTexts(context, columns)
    texts = {
        place: texts_of_file
        for place, *texts_of_file in zip(
            zip(*(columns.column(name).to_pylist() for name in _PLACE_COLUMNS), strict=True),
            statistics.minima().to_pylist(),
            statistics.maxima().to_pylist(),
            statistics.null_counts().to_pylist(),
            strict=True,
        )
    }
    return {
        "table": context.name,
        "location": context.location,
        "key": list(context.schema.trimmed_primary_keys),
        "keys": keys.rows,
        "levels": context.options.num_levels,
        "buckets": [_bucket_name(context, partition, bucket) for partition, bucket in buckets],
        "files": [
            _file(entry, buckets[entry.bucket_id], keys.ranks[number], texts[place])
            for number, (place, entry) in enumerate(history.entries.items())
        ],
        "first": [numbers[place] for place in history.first],
        "snapshots": [
            _snapshot(snapshot)
            | {"added": [numbers[place] for place in added], "removed": [numbers[p] for p in removed]}
            for snapshot, added, removed in history.steps
        ],
    }


_PLACE_COLUMNS: Final = ("partition", "bucket", "level", "file_name")


def _place(entry: ManifestEntry) -> _Place:
    return entry.partition, entry.bucket, entry.file.level, entry.file.file_name


class _History:
    """The files of consecutive snapshots.

    entries: each file that was live at one of them
    first: the files of the first snapshot
    steps: each snapshot, with the files that it added and removed
    """

    def __init__(self, context: TableContext, snapshots: Sequence[Snapshot]) -> None:
        self.entries: dict[_Place, ManifestEntry] = {}
        self.steps: list[tuple[Snapshot, list[_Place], list[_Place]]] = []
        with raise_if_snapshot_expired(context, snapshots[0].id):
            first = [entry for entry in live_entries(context, snapshots[0]) if entry.bucket >= 0]
        self.first = self._places(first)
        for snapshot in snapshots:
            with raise_if_snapshot_expired(context, snapshot.id):
                delta = [entry for entry in delta_entries(context, snapshot) if entry.bucket >= 0]
            added = self._places([entry for entry in delta if entry.kind is FileKind.ADD])
            removed = [_place(entry) for entry in delta if entry.kind is FileKind.DELETE]
            known = [place for place in removed if place in self.entries]  # the first snapshot removed older files
            self.steps.append((snapshot, added, known))

    def _places(self, entries: Sequence[ManifestEntry]) -> list[_Place]:
        self.entries.update((_place(entry), entry) for entry in entries)
        return [_place(entry) for entry in entries]


@dataclass(frozen=True)
class _Keys:
    """The bounds of all files in one order.

    rows: the distinct keys, ascending
    ranks: for each file the places of its smallest and greatest key in `rows`
    """

    rows: list[list[Any]]
    ranks: list[tuple[int, int]]

    @classmethod
    def of(cls, context: TableContext, entries: Sequence[ManifestEntry]) -> _Keys:
        fields = context.schema.select(context.schema.trimmed_primary_keys)
        bounds = [bound for entry in entries for bound in (entry.file.min_key, entry.file.max_key)]
        distinct = list(dict.fromkeys(bounds))
        names = [f"f{number}" for number in range(len(fields))]
        table = pa.table(decode_rows(distinct, [field.type for field in fields]), names=names)
        order = pc.sort_indices(table, [(name, "ascending") for name in names]).to_numpy()
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        rank_of = dict(zip(distinct, ranks.tolist(), strict=True))
        rows = [list(row.values()) for row in json_rows(table.take(pa.array(order)))]
        return cls(rows, [(rank_of[entry.file.min_key], rank_of[entry.file.max_key]) for entry in entries])


def _bucket_name(context: TableContext, partition: bytes, bucket: int) -> str:
    fields = context.schema.partition_fields
    values: Member = {}
    if fields:
        columns = decode_rows([partition], [field.type for field in fields])
        values = json_rows(pa.table(columns, names=[field.name for field in fields]))[0]
    named = " ".join(f"{name}={'null' if value is None else value}" for name, value in values.items())
    return f"{named} bucket {bucket}".strip()  # the page shows text only, whatever it contains


def _file(entry: ManifestEntry, bucket: int, ranks: tuple[int, int], texts: Sequence[str]) -> Member:
    file = entry.file
    return {
        "name": file.file_name,
        "bucket": bucket,
        "level": file.level,
        "bytes": file.file_size,
        "rows": file.row_count,
        "deletes": file.delete_row_count,
        "sequences": [file.min_sequence_number, file.max_sequence_number],
        "keys": ranks,
        "created_ms": file.created_epoch_ms,
        "min": texts[0],
        "max": texts[1],
        "nulls": texts[2],
        "index": bool(file.embedded_index or any(name.endswith(".index") for name in file.extra_files)),
    }


def _snapshot(snapshot: Snapshot) -> Member:
    return {
        "id": snapshot.id,
        "time_ms": snapshot.time_ms,
        "kind": snapshot.commit_kind.value,
        "user": snapshot.commit_user,
        "reason": snapshot.properties.get(COMPACTION_REASON_PROPERTY),
    }
