"""Reads the rows of splits. Files are merged if several may hold versions of a key; otherwise they are read directly.

Source: Java `operation/MergeFileSplitRead.java`, `RawFileSplitRead.java`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, starmap
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap

from tidelake.errors import BadInput
from tidelake.storage.fileio.requests import is_remote
from tidelake.storage.files.bucket_directory import bucket_directory, data_file_path
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import read_data_file
from tidelake.storage.merge.merge_functions import MergeFunction, merge_function_of
from tidelake.storage.merge.merge_reader import drop_retracts
from tidelake.storage.merge.section_merge import SectionMerge
from tidelake.storage.merge.sections import BatchSize, batch_size
from tidelake.storage.merge.sorted_run import Section, SortedRun
from tidelake.storage.model.definition import REWRITTEN, Definition, with_definition_of
from tidelake.storage.model.deletion_vectors.vector_file import DeletionFile, read_vector
from tidelake.storage.model.format import RowKind
from tidelake.storage.model.schema.table_schema import KIND_FIELD, ROW_ID_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, arrow_schema
from tidelake.storage.model.types.row_kinds import with_kind
from tidelake.storage.read.arrow_expressions import matching_rows
from tidelake.storage.read.evolution.row_id_group_reader import RowIdGroupReader
from tidelake.storage.read.evolution.tracked_columns import tracked_schema
from tidelake.storage.read.expired_snapshots import raise_if_snapshot_expired
from tidelake.storage.read.late_materialization import Batches, matching_positions
from tidelake.storage.read.predicate import Predicate
from tidelake.storage.read.row_masks import row_mask
from tidelake.storage.read.sections_ahead import bytes_ahead, read_side_by_side
from tidelake.storage.read.skipping.file_index_predicate import FileIndexPredicate
from tidelake.storage.read.split import Split

_SPECIAL: Final = (KIND_FIELD, SEQUENCE_FIELD, ROW_ID_FIELD)
_SPECIAL_NAMES: Final = frozenset(field.name for field in _SPECIAL)


@dataclass(frozen=True, slots=True)
class _Bucket:
    """The directory of a split's files, and what they have in common.

    partition: serialized BinaryRow.
    """

    directory: str
    partition: bytes
    deletion_files: Mapping[str, DeletionFile]
    row_ranges: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class SnapshotReader:
    """Reads splits of one table.

    context: its schema is used for the read; rows written under other schemas are mapped to it
    columns: names in the wanted order
    predicate: applied to every row

    The columns may include `_VALUE_KIND` and `_SEQUENCE_NUMBER`, and with row tracking `_ROW_ID`. With `_VALUE_KIND`,
    rows are returned as they are stored. This includes deleted keys as -D, if no compaction has removed them.
    """

    context: TableContext
    columns: tuple[str, ...]
    predicate: Predicate | None = None

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the resulting batches."""
        special = {field.name: field for field in arrow_schema(_SPECIAL)}
        own = self.context.schema.arrow
        return pa.schema([special[name] if name in special else own.field(name) for name in self.columns])

    def read(self, splits: Iterable[Split]) -> Iterator[pa.RecordBatch]:
        """Yield batches of at least one row. Raises SnapshotExpired if files were deleted with their snapshot.

        If the files are far away, the first batches of the next sections are read side by side with this one.
        """
        sections = ((split, section) for split in splits for section in split.sections)
        if is_remote(self.context.location):
            return read_side_by_side(sections, lambda one: self._rows(*one), lambda one: bytes_ahead(one[1]))
        return chain.from_iterable(starmap(self._rows, sections))

    def _rows(self, split: Split, section: Section) -> Iterator[pa.RecordBatch]:
        directory = bucket_directory(self.context, split.partition, split.bucket)
        bucket = _Bucket(directory, split.partition, split.deletion_files, split.row_ranges)
        with raise_if_snapshot_expired(self.context, split.snapshot_id):
            yield from map(self._output, filter(_has_rows, self._section(section, bucket)))

    def known_rows(self, split: Split) -> tuple[int, Split | None]:
        """Return how many rows of a split metadata knows, and the split of the others; None if there are no others.

        It knows those of files that are not merged, have no deletes, and whose deletion vectors are counted. The
        condition is not regarded.
        """
        known, others = 0, []
        for section in split.sections:
            rows = self.known_rows_of(section, split)
            if rows is None:
                others.append(section)
            else:
                known += rows
        return known, replace(split, sections=tuple(others)) if others else None

    def known_rows_of(self, section: Section, split: Split) -> int | None:
        """Return how many rows a section of the split has; None if metadata doesn't know. See `known_rows`."""
        if self._keeps_kinds or len(section) != 1:
            return None
        known = 0
        for file in section[0]:
            deletion = split.deletion_files.get(file.file_name)
            deleted = 0 if deletion is None else deletion.vector.cardinality
            has_retracts = self.context.schema.has_primary_key and _may_hold_retracts(file)
            in_part = deletion is not None and file.file_name in split.row_ranges
            if deleted is None or has_retracts or in_part:
                return None
            known += split.rows_of(file) - deleted
        return known

    def _output(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch.select(self.columns)

    def _section(self, section: Section, bucket: _Bucket) -> Iterator[pa.RecordBatch]:
        if len(section) > 1 and (as_written := self._as_written(section)) is not None:
            schema = arrow_schema([*self._output_fields, *(f for f in _SPECIAL if f.name in self.columns)])
            rows = as_written._section(section, bucket)
            return (batch.select(schema.names).cast(schema) for batch in rows)
        if self.context.options.data_evolution_enabled:
            return self._row_id_group(section, bucket)
        needs_kinds = self._keeps_kinds or any(_may_hold_retracts(file) for run in section for file in run)
        if len(section) == 1:
            return self._single_run(section[0], bucket, needs_kinds)
        return self._merged(section, bucket, needs_kinds)

    def _as_written(self, section: Section) -> SnapshotReader | None:
        """Return a reader that merges the files of a section as they were written, if the table was rewritten with
        another key or merge engine since: for older changes, and for a rewrite that is not finished.
        """
        schema = self.context.schema
        schema_id = max(file.schema_id for run in section for file in run)
        if schema_id == schema.id or not schema.has_primary_key:
            return None
        written = self.context.schemas.get(schema_id)
        if REWRITTEN not in written.options and REWRITTEN not in schema.options and schema.has_same_keys(written):
            return None
        if Definition.of(schema) == Definition.of(written):
            return None
        return replace(self, context=self.context.with_schema(with_definition_of(schema, written)))

    def _row_id_group(self, section: Section, bucket: _Bucket) -> Iterator[pa.RecordBatch]:
        files = [file for run in section for file in run]
        batches = self._groups.read(files, bucket.directory, bucket.partition, bucket.deletion_files)
        rows = filtered(self.context, batches, self.predicate)
        return (with_kind(batch, RowKind.INSERT) for batch in rows) if self._keeps_kinds else rows

    @cached_property
    def _groups(self) -> RowIdGroupReader:
        return RowIdGroupReader(self.context, (*self._output_fields, *self._tracked_fields), self._file_condition)

    @cached_property
    def _tracked_fields(self) -> tuple[DataField, ...]:
        """The requested or filtered columns that a file need not hold."""
        named = {*self.columns, *(self.predicate.columns if self.predicate is not None else ())}
        return tuple(field for field in (SEQUENCE_FIELD, ROW_ID_FIELD) if field.name in named)

    @cached_property
    def _file_condition(self) -> Predicate | None:
        """The part of the condition on the table's own columns. Only these have statistics and indexes in files."""
        return None if self.predicate is None else self.predicate.within(frozenset(self.context.schema.names))

    def _single_run(self, run: SortedRun, bucket: _Bucket, needs_kinds: bool) -> Iterator[pa.RecordBatch]:
        """Read one run. No key is in it twice, so the whole condition may be applied while reading."""
        has_kinds = self.context.schema.has_primary_key
        fields = [*self._output_fields, *([KIND_FIELD] if needs_kinds and has_kinds else [])]
        fields += self._tracked_fields
        batches = self._read_run(run, bucket, fields, batch_size([run]), self.predicate, use_threads=True)
        if not self._keeps_kinds:
            return drop_retracts(batches)
        return batches if has_kinds else (with_kind(batch, RowKind.INSERT) for batch in batches)

    def _merged(self, section: Section, bucket: _Bucket, needs_kinds: bool) -> Iterator[pa.RecordBatch]:
        """Merge runs. Conditions on the key are applied before merging: all versions of a key fulfil them or none."""
        merging = SectionMerge.of(self.context, section)
        names = [f.name for f in self._output_fields]
        fields = merging.fields_read(
            names, self._merge_function, kinds=needs_kinds, sequences=SEQUENCE_FIELD.name in self.columns
        )
        key_columns = frozenset(merging.order.key_columns)
        key_condition = self.predicate.within(key_columns) if self.predicate is not None else None

        def read(run: SortedRun) -> Iterator[pa.RecordBatch]:
            return self._read_run(run, bucket, fields, merging.batch_size, key_condition)

        merged = merging.merge(read, fields, self._merge_function.merge, newest_wins=self._merge_function.newest_wins)
        return filtered(self.context, merged if self._keeps_kinds else drop_retracts(merged), self.predicate)

    @cached_property
    def _index_predicate(self) -> FileIndexPredicate:
        return FileIndexPredicate(self.context, self._file_condition)

    @cached_property
    def _merge_function(self) -> MergeFunction:
        return merge_function_of(self.context)

    @cached_property
    def _output_fields(self) -> tuple[DataField, ...]:
        """The requested columns and the columns that the condition reads."""
        conditioned = sorted(self.predicate.columns) if self.predicate is not None else []
        names = dict.fromkeys([*self.columns, *conditioned])
        return self.context.schema.select([name for name in names if name not in _SPECIAL_NAMES])

    @property
    def _keeps_kinds(self) -> bool:
        return KIND_FIELD.name in self.columns

    def _read_run(
        self,
        run: SortedRun,
        bucket: _Bucket,
        fields: Sequence[DataField],
        size: BatchSize,
        condition: Predicate | None,
        *,
        use_threads: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Read rows that fulfil the condition. Parts of files without such rows are not decoded."""
        by_file = self._file_condition if condition is self.predicate else condition
        index_predicate = (
            self._index_predicate if condition is self.predicate else FileIndexPredicate(self.context, condition)
        )
        for file in run:
            path = data_file_path(bucket.directory, file)
            deletion = bucket.deletion_files.get(file.file_name)
            selected = index_predicate.selected_rows(file, path)
            if (range_of_rows := bucket.row_ranges.get(file.file_name)) is not None:
                in_range = BitMap(range(*range_of_rows))
                selected = in_range if selected is None else selected & in_range
            if selected is not None and not selected:
                continue
            rows_of = partial(
                read_data_file,
                self.context,
                file,
                path,
                partition=bucket.partition,
                batch_rows=size.rows,
                batch_bytes=size.bytes,
                predicate=by_file,
                deleted=None if deletion is None else read_vector(self.context.io, deletion),
                use_threads=use_threads,
            )
            matching = partial(self._matching, rows_of, condition)
            positions = matching_positions(self.context, file, fields, condition, partial(matching, selected))
            if positions is not None and not positions:
                continue
            yield from matching(selected if positions is None else positions, fields)

    def _matching(
        self,
        rows_of: Callable[..., Batches],
        condition: Predicate | None,
        selected: BitMap | None,
        fields: Sequence[DataField],
    ) -> Batches:
        return filtered(self.context, rows_of(read_fields=fields, selected=selected), condition)


def filtered(
    context: TableContext, batches: Iterator[pa.RecordBatch], condition: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """Yield rows that fulfil the condition; batches may be empty. Raises BadInput if it can't be applied."""
    if condition is None:
        return batches
    schema = tracked_schema(context)
    mask = row_mask(condition, schema)
    if mask is not None:
        return (_masked(batch, mask(batch)) for batch in batches)
    return _filter_batches(context, batches, condition.expression(schema))


def _masked(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    return batch.filter(mask) if mask.true_count else batch.slice(0, 0)


def _filter_batches(
    context: TableContext, batches: Iterator[pa.RecordBatch], expression: pc.Expression
) -> Iterator[pa.RecordBatch]:
    def kept(batch: pa.RecordBatch) -> pa.RecordBatch:
        try:
            return matching_rows(batch, expression)
        except pa.ArrowException as e:  # an Arrow expression of the caller that fails for some values
            raise BadInput(
                f"{context.name}: the filter can't be applied to these rows: {str(e).splitlines()[0]}"
            ) from None

    return map(kept, batches)


def _has_rows(batch: pa.RecordBatch) -> bool:
    return bool(batch.num_rows)


def _may_hold_retracts(file: DataFileMeta) -> bool:
    """Whether a file may hold retracts. Level-0 files always may: pypaimon writes 0 deletes for files with deletes."""
    return file.level == 0 or file.may_hold_deletes
