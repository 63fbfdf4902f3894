"""Checks the content of data files: reads every row, and compares the result with the manifest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tidelake.errors import TidelakeError, UnsupportedFeature
from tidelake.storage.base.progress import tracked
from tidelake.storage.commit.manifests.manifest_entry import ManifestEntry
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.maintenance.verify.data_file_check import ReferencedFile
from tidelake.storage.maintenance.verify.finding import REPORT, RESTORE, Finding, Severity
from tidelake.storage.maintenance.verify.stats_check import StatsCheck
from tidelake.storage.merge.normalized_keys import KeyWords, align_keys, normalize_column
from tidelake.storage.model.binary_row import decode_rows
from tidelake.storage.model.bucketing import Bucketing, BucketMode
from tidelake.storage.model.format import KIND_COLUMN, POSTPONE_BUCKET, SEQUENCE_COLUMN, RowKind
from tidelake.storage.model.schema.table_schema import KIND_FIELD, SEQUENCE_FIELD, TRACKING_FIELDS
from tidelake.storage.model.table import TableContext

_RETRACTS = pa.array([int(kind) for kind in RowKind if kind.is_retract], pa.int8())


def check_rows(files: Collection[ReferencedFile]) -> Iterator[Finding]:
    """Check data files and changelog files. Memory: one batch at a time."""
    total = sum(file.entry.file.file_size for file in files)
    for file in tracked("checking rows", files, total, "bytes", lambda file: file.entry.file.file_size):
        path = file.path
        try:
            yield from _check_file(file)
        except UnsupportedFeature as error:
            what = f"its rows can't be checked here: {error}"
            yield Finding("rows-unsupported", path, what, "Java Paimon can read them", Severity.NOTE)
        except (TidelakeError, OSError, ValueError) as error:
            if file.context.io.exists(path):  # a missing file was reported already
                yield Finding("rows-unreadable", path, f"its rows can't be read: {error}", RESTORE)


@dataclass(frozen=True, slots=True)
class _FileContent:
    """What the rows of a file show; None if it has no rows."""

    rows: int
    retracts: int
    min_sequence: int | None
    max_sequence: int | None
    first: pa.RecordBatch | None  # one row: the key columns
    last: pa.RecordBatch | None
    is_sorted: bool
    misplaced_rows: int  # rows that belong to another bucket
    untrue: Sequence[str]  # what is wrong with the statistics of the file


def _check_file(named: ReferencedFile) -> Iterator[Finding]:
    path, entry, file = named.path, named.entry, named.entry.file
    context = named.context.with_schema(named.context.schemas.get(file.schema_id))
    content = _read(context, path, entry)
    wrong = []
    if content.rows != file.row_count:
        wrong.append(f"{content.rows} rows instead of {file.row_count}")
    if content.misplaced_rows:
        wrong.append(f"{content.misplaced_rows} rows that belong to another bucket than {entry.bucket}")
    has_rows = content.rows > 0 and context.schema.has_primary_key
    sequence_numbers = content.min_sequence, content.max_sequence
    if has_rows and sequence_numbers != (file.min_sequence_number, file.max_sequence_number):
        wrong.append(
            f"sequence numbers {content.min_sequence} to {content.max_sequence} instead of "
            f"{file.min_sequence_number} to {file.max_sequence_number}"
        )
    if has_rows and _is_sorted_by_key(context, entry):
        if not content.is_sorted:
            wrong.append("keys that are not in ascending order, or are duplicate")
        wrong += _bound_findings(context, file, content)
    if wrong:
        yield Finding("rows-differ", path, f"holds {'; '.join(wrong)}", REPORT)
    if content.untrue:
        what = f"its manifest is wrong, and reads with a condition may lose rows: {'; '.join(content.untrue)}"
        yield Finding("statistics-differ", path, what, REPORT)
    if has_rows and file.delete_row_count is not None and content.retracts != file.delete_row_count:
        what = f"holds {content.retracts} deletes, the manifest says {file.delete_row_count} (pypaimon writes 0)"
        yield Finding("delete-count", path, what, "Nothing: readers of this release look into the file", Severity.NOTE)


def _is_sorted_by_key(context: TableContext, entry: ManifestEntry) -> bool:
    """Changelog files and postponed files may hold a key more than once, so they are not sorted by unique keys."""
    is_changelog = entry.file.file_name.startswith(context.options.changelog_file_prefix)
    is_postponed = entry.bucket == POSTPONE_BUCKET
    return not (is_changelog or is_postponed or context.options.pk_clustering_override)


def _read(context: TableContext, path: str, entry: ManifestEntry) -> _FileContent:
    schema = context.schema
    keys = schema.key_fields
    system = [*keys, SEQUENCE_FIELD, KIND_FIELD] if schema.has_primary_key else []
    columns = [f for f in schema.stored_in(entry.file.write_columns) if f.name not in TRACKING_FIELDS]
    bucketing = _bucketing(context, entry)
    rows = retracts = misplaced_rows = 0
    lows: list[int] = []
    highs: list[int] = []
    first: pa.RecordBatch | None = None
    last: pa.RecordBatch | None = None
    is_sorted = True
    statistics = StatsCheck(context, entry.file, [*system, *columns])
    for batch in read_data_file(context, entry.file, path, [*system, *columns], partition=entry.partition):
        rows += batch.num_rows
        statistics.add(batch)
        if bucketing is not None:
            found = bucketing.bucket_ids(
                [batch.column(name) for name in bucketing.key_columns], num_buckets=entry.total_buckets
            )
            misplaced_rows += int((found != entry.bucket).sum())
        if not system:
            continue
        sequence = batch.column(SEQUENCE_COLUMN).to_numpy()
        lows.append(int(sequence.min()))
        highs.append(int(sequence.max()))
        retracts += pc.is_in(batch.column(KIND_COLUMN), value_set=_RETRACTS).true_count
        key = batch.select([field.name for field in keys])
        with_last = key if last is None else pa.concat_batches([last, key])
        is_sorted &= bool(_ascends(_words(context, with_last)).all())
        first, last = first or key.slice(0, 1), key.slice(key.num_rows - 1)
    lowest, highest = min(lows, default=None), max(highs, default=None)
    return _FileContent(
        rows, retracts, lowest, highest, first, last, is_sorted, misplaced_rows, list(statistics.findings())
    )


def _bucketing(context: TableContext, entry: ManifestEntry) -> Bucketing | None:
    """Return None if the bucket is not a function of the row."""
    bucketing = Bucketing.of(context.schema, context.options)
    chooses = bucketing.mode in (BucketMode.FIXED, BucketMode.POSTPONE) and bucketing.key_columns
    is_function = chooses and entry.bucket != POSTPONE_BUCKET and entry.total_buckets > 0
    return bucketing if is_function and entry.file.write_columns is None else None


def _bound_findings(context: TableContext, file: DataFileMeta, content: _FileContent) -> Iterator[str]:
    """Compare the first and last key with the manifest."""
    keys = context.schema.key_fields
    bounds = decode_rows([file.min_key, file.max_key], [field.type for field in keys])
    for which, row in ((0, content.first), (1, content.last)):
        assert row is not None
        recorded = pa.RecordBatch.from_arrays([column.slice(which, 1) for column in bounds], schema=row.schema)
        pair = _words(context, pa.concat_batches([recorded, row]))
        if any(word[0] != word[1] for word in pair):
            kind = ("smallest", "largest")[which]
            yield f"a {kind} key {row.to_pylist()[0]} instead of {recorded.to_pylist()[0]}"


def _words(context: TableContext, keys: pa.RecordBatch) -> KeyWords:
    columns = [
        normalize_column(column, nullable=field.type.nullable)
        for column, field in zip(keys.columns, context.schema.key_fields, strict=True)
    ]
    return align_keys([columns])[0]


def _ascends(words: KeyWords) -> NDArray[np.bool_]:
    """Return for each row except the first whether its key is above the previous one."""
    n = len(words[0])
    above, equal = np.zeros(max(n - 1, 0), np.bool_), np.ones(max(n - 1, 0), np.bool_)
    for word in words:
        above |= equal & (word[:-1] < word[1:])
        equal &= word[:-1] == word[1:]
    return above
