"""Groups files that hold columns of the same rows, and finds which file provides each column.

    rows 0..99    a.parquet  all columns, sequence 1        v.parquet  only v, sequence 5      v is read from here
                  b-0.blob   column b of rows 0..59         b-1.blob   column b of rows 60..99
    rows 100..    …                                                                            the next group

Files whose ranges of row ids overlap form one group. If several of its files hold a column, the file with the largest
sequence number provides it.

Source: Java `operation/DataEvolutionSplitRead.java`, `utils/RangeHelper.java`, `utils/DataEvolutionUtils.java`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from tidelake.errors import CorruptFile, UnsupportedFeature
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.files.reader import written_fields
from tidelake.storage.model.format import BLOB_FORMAT, VECTOR_FILE_MARK
from tidelake.storage.model.paths import format_of
from tidelake.storage.model.schema.table_schema import ROW_ID_FIELD, SEQUENCE_FIELD
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField

RowIdGroup: TypeAlias = list[DataFileMeta]

_TRACKED: Final = (ROW_ID_FIELD, SEQUENCE_FIELD)  # every ordinary file provides them for its rows


def row_ids(file: DataFileMeta) -> range:
    """Return the row ids of a file. Raises CorruptFile if its manifest entry has no first row id."""
    if file.first_row_id is None:
        raise CorruptFile(file.file_name, "the first row id of a file of a table with data evolution", "none")
    return range(file.first_row_id, file.first_row_id + file.row_count)


def row_ids_of(group: Sequence[DataFileMeta]) -> range:
    ranges = [row_ids(file) for file in group]
    return range(min(ids.start for ids in ranges), max(ids.stop for ids in ranges))


def row_id_groups(files: Sequence[DataFileMeta]) -> list[RowIdGroup]:
    """Return the row-id groups, ordered by row ids. Files of a group keep the given order."""
    groups: list[list[int]] = []
    end = -1
    for number in sorted(range(len(files)), key=lambda i: (row_ids(files[i]).start, row_ids(files[i]).stop)):
        ids = row_ids(files[number])
        if groups and ids.start < end:
            groups[-1].append(number)
        else:
            groups.append([number])
        end = max(end, ids.stop)
    return [[files[number] for number in sorted(group)] for group in groups]


def is_blob_file(file: DataFileMeta) -> bool:
    return format_of(file.file_name) == BLOB_FORMAT


def is_vector_file(file: DataFileMeta) -> bool:
    return VECTOR_FILE_MARK in file.file_name


def ordinary_files(group: Sequence[DataFileMeta]) -> list[DataFileMeta]:
    """Return the files of ordinary columns, newest first. Raises CorruptFile if they don't have the same rows."""
    ordinary = [file for file in group if not is_blob_file(file) and not is_vector_file(file)]
    for file in ordinary[1:]:
        if row_ids(file) != row_ids(ordinary[0]):
            raise CorruptFile(
                file.file_name, f"rows {row_ids(ordinary[0])}, as {ordinary[0].file_name}", str(row_ids(file))
            )
    return sorted(ordinary, key=lambda file: -file.max_sequence_number)


def anchor_of(group: Sequence[DataFileMeta]) -> DataFileMeta | None:
    """Return the anchor: the oldest ordinary file, whose name and positions deletion vectors use. None without one."""
    return min(ordinary_files(group), key=lambda file: (file.max_sequence_number, file.file_name), default=None)


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The source of some columns of a group: one ordinary file, the files of a BLOB column, or files of vectors.

    fields: the requested columns that it provides.
    """

    files: tuple[DataFileMeta, ...]
    fields: tuple[DataField, ...]

    @property
    def is_blob(self) -> bool:
        return is_blob_file(self.files[0])


def column_sources(
    context: TableContext, group: Sequence[DataFileMeta], wanted: Sequence[DataField]
) -> list[ColumnSource]:
    """Return the sources of a group. Each wanted column is in at most one source, or in none if no file holds it.

    At least one source is returned, because the rows must be counted.

    context: its schema is used for the read
    wanted: columns of the table, `_ROW_ID`, `_SEQUENCE_NUMBER`
    """
    left = {field.id: field for field in wanted}
    sources = []
    for files in _column_file_sets(context, group):
        held = {field.id for field in written_fields(context, files[0])}
        if not is_blob_file(files[0]) and not is_vector_file(files[0]):
            held |= {field.id for field in (*_TRACKED, *context.schema.partition_fields)}
        found = tuple(left.pop(number) for number in list(left) if number in held)
        if found:
            sources.append(ColumnSource(files, found))
    return sources or [ColumnSource(next(_column_file_sets(context, group)), ())]


def _column_file_sets(context: TableContext, group: Sequence[DataFileMeta]) -> Iterator[tuple[DataFileMeta, ...]]:
    """Yield files that together have a value for each row: each ordinary file, newest first; then blobs, vectors."""
    for file in ordinary_files(group):
        yield (file,)
    by_column: dict[tuple[bool, tuple[int, ...]], list[DataFileMeta]] = {}
    for file in group:
        if is_blob_file(file) or is_vector_file(file):
            columns = tuple(sorted(field.id for field in written_fields(context, file)))
            by_column.setdefault((is_vector_file(file), columns), []).append(file)
    for (is_vector, _), files in sorted(by_column.items()):
        yield tuple(_newest_vectors(files) if is_vector else files)


def _newest_vectors(files: Sequence[DataFileMeta]) -> Iterator[DataFileMeta]:
    """Yield the files in the order of their rows. A file whose rows are all in a newer file is left out."""
    end = -1
    for file in sorted(files, key=lambda file: (row_ids(file).start, -file.max_sequence_number)):
        ids = row_ids(file)
        if ids.start >= end:
            yield file
            end = ids.stop
        elif ids.stop > end:
            raise UnsupportedFeature(
                f"vectors of {file.file_name}",
                "they overlap those of another file without being the same rows",
                "Compact the table with Java Paimon",
            )


def claimed_columns(
    context: TableContext, group: Sequence[DataFileMeta], *, names: Mapping[int, str]
) -> list[tuple[DataFileMeta, frozenset[str]]]:
    """Return for each ordinary file, newest first, the columns that it provides. Its other columns are outdated.

    names: names of the table's columns by field id.
    """
    taken: set[int] = set()
    claims = []
    for file in ordinary_files(group):
        own = {field.id for field in written_fields(context, file)} - taken
        taken |= own
        claims.append((file, frozenset(names[number] for number in own if number in names)))
    return claims
