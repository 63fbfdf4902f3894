"""Computes what an overwrite replaces.

Source: Java `operation/commit/OverwriteChangesProvider.java`, `FileStoreCommitImpl.tryUpgrade`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.storage.base.errors import BadInput
from tidelake.storage.commit.conflicts import Bucket, first_overlap
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.merge.sorted_run import key_ranges
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.format import POSTPONE_BUCKET, FileKind
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataType, arrow_type


def delete_entries(live: Sequence[ManifestEntry], table_bucket: int, *, drop_stats: bool) -> list[ManifestEntry]:
    """Returns a DELETE for each file. Postponed files (bucket -2) stay, unless the table has `bucket = -2`."""
    return [
        entry.as_delete(drop_stats=drop_stats) for entry in live if entry.bucket >= 0 or table_bucket == POSTPONE_BUCKET
    ]


def matching_partitions(
    partitions: Collection[bytes], specs: Sequence[Mapping[str, Any]], context: TableContext
) -> set[bytes]:
    """Returns the partitions that match one of the specs.

    specs: column -> value (None or the text of `partition.default-name` for null). Columns that are left out match any
        value. A text is converted to the column's type.

    Raises BadInput for a column that is no partition column, or a value that is not of its type.
    """
    fields = context.schema.partition_fields
    types = {field.name: field.type for field in fields}
    wanted = [_typed(spec, types, context) for spec in specs]
    if not partitions or not fields:
        return set(partitions)
    rows = sorted(partitions)
    columns = dict(zip(types, decode_rows(rows, list(types.values())), strict=True))
    return {row for i, row in enumerate(rows) if any(_matches_spec(spec, columns, i) for spec in wanted)}


def _typed(spec: Mapping[str, Any], types: Mapping[str, DataType], context: TableContext) -> dict[str, pa.Scalar]:
    unknown = [name for name in spec if name not in types]
    if unknown:
        by = f"is partitioned by {', '.join(types)}" if types else "is not partitioned"
        raise BadInput(f"{context.name} {by}; {unknown[0]!r} can't select partitions")
    typed = {}
    for name, value in spec.items():
        given = None if value == context.options.partition_default_name else value
        wanted = arrow_type(types[name])
        try:
            typed[name] = pa.scalar(given).cast(wanted) if isinstance(given, str) else pa.scalar(given, wanted)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError, OverflowError) as e:
            raise BadInput(
                f"{context.name}: {value!r} is not a valid value of partition column {name} ({types[name]}): {e}"
            ) from None
    return typed


def _matches_spec(spec: Mapping[str, pa.Scalar], columns: Mapping[str, pa.Array], row: int) -> bool:
    return all(_same(value, columns[name][row]) for name, value in spec.items())


def _same(one: pa.Scalar, other: pa.Scalar) -> bool:
    if one.is_valid and other.is_valid:
        return bool(pc.equal(one, other).as_py())
    return bool(one.is_valid == other.is_valid)


def upgraded(new: Sequence[ManifestEntry], key_types: Sequence[DataType], top_level: int) -> list[ManifestEntry]:
    """Moves files that replace a bucket to the top level if they don't overlap: the bucket has no other files.

    It changes nothing unless all files are of level 0 and in real buckets.
    """
    if any(entry.file.level > 0 or entry.bucket < 0 or entry.kind is not FileKind.ADD for entry in new):
        return list(new)
    buckets: dict[Bucket, list[ManifestEntry]] = defaultdict(list)
    for entry in new:
        buckets[entry.partition, entry.bucket].append(entry)
    result: list[ManifestEntry] = []
    for entries in buckets.values():
        overlaps = first_overlap(key_ranges([entry.file for entry in entries], key_types)) is not None
        level = 0 if overlaps else top_level
        result += [replace(entry, file=replace(entry.file, level=level)) for entry in entries]
    return result
