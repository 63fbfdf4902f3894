"""Column names in lower case, whatever case the source's names have, for the records of any format.

The format's own decoder is case-sensitive. It gets targets with the source's column names. These names are learned from
records that don't fit: a batch is decoded up to the first such record. From this record on it is decoded with the
record's names.

Source: Java `sink/CaseSensitiveUtils`, `CdcActionCommonUtils.listCaseConvert`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa

from tidelake.errors import TableNotInferred
from tidelake.ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    InferredTable,
    JsonView,
    KeyChanges,
    Skipped,
    TableRows,
    Target,
    TargetOf,
    UnavailableValues,
)
from tidelake.ingest.formats.case_insensitive.case_mapped_target import CaseMappedTarget
from tidelake.ingest.formats.renamed_columns import WrappingFormat
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.formats.values.json_text import BadValue, read_object
from tidelake.ingest.raw_batch import RawBatch

# The number of records decoded first after a new spelling. It is small, as shards of a table may alternate in spelling.
_FIRST_RECORDS: Final = 64


@dataclass(frozen=True)
class LowerCaseFormat(WrappingFormat):
    """A format with column names in lower case."""

    def decoder(self, target_of: TargetOf) -> Decoder:
        return LowerCaseDecoder(self.format.decoder, target_of)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the table of a record. Also raises TableNotInferred for two columns that differ only in case."""
        found = self.format.infer_table(batch, row)
        names = [field.name for field in found.fields]
        if same := _first_case_duplicate(names):
            raise TableNotInferred.for_record(batch, row, _case_duplicate_text(*same))
        return InferredTable(
            tuple(replace(field, name=field.name.lower()) for field in found.fields),
            tuple(name.lower() for name in found.primary_key),
            {name.lower(): source for name, source in found.sources.items()},
            found.key_error,
            {name.lower(): source for name, source in found.outside.items()},
        )


@dataclass(frozen=True, slots=True)
class _SourceSpelling:
    """A record's spelling of a column.

    name: the spelling.
    is_of_key: whether it is in the record's key.
    """

    name: str
    is_of_key: bool


@dataclass(slots=True)
class _Results:
    """The results of the parts of one batch."""

    tables: dict[str, list[TableRows]] = field(default_factory=dict)
    failures: list[DecodeFailure] = field(default_factory=list)
    skipped: dict[Skipped, int] = field(default_factory=dict)
    unrouted: dict[SourceTable, int] = field(default_factory=dict)
    unrouted_records: dict[SourceTable, int] = field(default_factory=dict)
    only_deleted: set[SourceTable] = field(default_factory=set)

    def add(self, part: DecodedBatch, spelled: Mapping[str, CaseMappedTarget], begin: int) -> None:
        """Add the results of a part.

        spelled: table name to the table with the source's spellings.
        begin: the batch's row at which the part begins.
        """
        for rows in part.tables:
            self.tables.setdefault(rows.target.name, []).append(spelled[rows.target.name].rows(rows))
        for failure in part.failures:
            table = None if failure.target is None else spelled[failure.target.name]
            reported = failure if table is None else table.failure(failure)
            if reported is None:
                self._count(Skipped.SCHEMA_CHANGE, 1)
            else:
                self.failures.append(replace(reported, row=begin + reported.row))
        for kind, count in part.skipped.items():
            self._count(kind, count)
        for source, row in part.unrouted.items():
            is_deleted = source in part.only_deleted
            if source not in self.unrouted or (source in self.only_deleted and not is_deleted):
                self.unrouted[source] = begin + row
                (self.only_deleted.add if is_deleted else self.only_deleted.discard)(source)
        for source, count in part.unrouted_records.items():
            self.unrouted_records[source] = self.unrouted_records.get(source, 0) + count

    def _count(self, kind: Skipped, count: int) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + count

    def to_batch(self) -> DecodedBatch:
        tables = tuple(_joined_rows(parts) for parts in self.tables.values())
        return DecodedBatch(
            tables,
            tuple(self.failures),
            self.skipped,
            self.unrouted,
            self.unrouted_records,
            frozenset(self.only_deleted),
        )


class LowerCaseDecoder:
    """The decoder for tables with columns in lower case. See `tidelake.ingest.formats.base.Decoder`.

    A record with two columns that have the same name in lower case is a bad record.

    make: returns the format's decoder.
    target_of: returns the target of a source table.
    """

    def __init__(self, make: Callable[[TargetOf], Decoder], target_of: TargetOf) -> None:
        self._target_of = target_of
        self._spelled: dict[str, CaseMappedTarget] = {}  # by the table's name
        self._decoder = make(self._spelled_target_of)

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return a record's value as JSON. See `JsonView`."""
        if isinstance(self._decoder, JsonView):
            return self._decoder.value_as_json(batch, row)
        value: bytes = batch.values[row].as_py()
        return value

    def decode(self, batch: RawBatch) -> DecodedBatch:
        found = _Results()
        begin, count = 0, len(batch)
        here: dict[tuple[str, str], _SourceSpelling] = {}  # (table, column) to the spelling in the record at `begin`
        while True:
            end = min(begin + count, len(batch))
            part = batch.slice(begin, end)
            decoded = self._decoder.decode(part)
            mismatch = self._first_mismatch(decoded, part, here)
            if mismatch is None:
                found.add(decoded, self._spelled, begin)
                begin, count, here = end, 2 * max(count, _FIRST_RECORDS), {}
            elif mismatch.failure.row > 0:
                found.add(self._decoder.decode(batch.slice(begin, begin + mismatch.failure.row)), self._spelled, begin)
                begin, count, here = begin + mismatch.failure.row, _FIRST_RECORDS, {}
            elif (conflict := mismatch.conflicting_spellings(here)) is not None:
                found.failures.append(
                    DecodeFailure(
                        begin,
                        mismatch.failure.offset,
                        FailureKind.BAD_RECORD,
                        _case_duplicate_text(*conflict),
                        mismatch.failure.source,
                    )
                )
                begin, here = begin + 1, {}
            else:
                here |= {
                    (mismatch.table, c): _SourceSpelling(name, mismatch.is_of_key)
                    for c, name in mismatch.learned.items()
                }
                spelled = self._spelled[mismatch.table]
                # Always a new object, even if no spelling differs any more: decoders cache by its target.
                self._spelled[mismatch.table] = CaseMappedTarget(
                    spelled.whole, {**spelled.spellings, **mismatch.learned}
                )
                count = _FIRST_RECORDS
            if begin >= len(batch):
                return found.to_batch()

    def _spelled_target_of(self, source: SourceTable) -> Target | None:
        whole = self._target_of(source)
        if whole is None:
            return None
        known = self._spelled.get(whole.name)
        if known is None or known.whole is not whole:
            spellings = {} if known is None else known.spellings
            columns = {*whole.schema.names, *whole.ignored_columns}
            kept = {column: name for column, name in spellings.items() if column in columns}
            known = self._spelled[whole.name] = CaseMappedTarget(whole, kept)
        return known.target

    def _first_mismatch(
        self, decoded: DecodedBatch, part: RawBatch, here: Mapping[tuple[str, str], _SourceSpelling]
    ) -> _CaseMismatch | None:
        """Return the first failure that may be caused by a spelling.

        here: spellings that were already learned from the first record.
        """
        for failure in decoded.failures:
            mismatch = self._mismatch(failure, part, {} if failure.row else here)
            if mismatch is not None and (mismatch.learned or mismatch.same is not None):
                return mismatch
        return None

    def _mismatch(
        self, failure: DecodeFailure, part: RawBatch, here: Mapping[tuple[str, str], _SourceSpelling]
    ) -> _CaseMismatch | None:
        if failure.kind is FailureKind.UNKNOWN_COLUMN and failure.target is not None:
            table = failure.target.name
            names = [one.path[0] for one in failure.needed if len(one.path) == 1]
            return _CaseMismatch(failure, table, self._spelled[table].learned(names), _first_case_duplicate(names))
        if failure.kind is not FailureKind.BAD_RECORD or failure.source is None:
            return None
        whole = self._target_of(failure.source)
        key = part.keys[failure.row].as_py()
        if whole is None or key is None or whole.name not in self._spelled:
            return None
        try:  # a delete may have only a key
            names = list(read_object(key))
        except BadValue:
            return None
        learned = self._spelled[whole.name].learned(names)
        keys = whole.schema.primary_keys
        new = {c: name for c, name in learned.items() if c in keys and (whole.name, c) not in here}
        return _CaseMismatch(failure, whole.name, new, None, is_of_key=True)


@dataclass(frozen=True, slots=True)
class _CaseMismatch:
    """A failure that may be caused by a new spelling of columns.

    failure: the failure.
    table: the table's name.
    learned: the table's column name to the record's new spelling.
    same: two of the record's columns that differ only in case.
    is_of_key: whether the spelling is from the record's key, which may differ from the spelling in the row.
    """

    failure: DecodeFailure
    table: str
    learned: Mapping[str, str]
    same: tuple[str, str] | None
    is_of_key: bool = False

    def conflicting_spellings(self, here: Mapping[tuple[str, str], _SourceSpelling]) -> tuple[str, str] | None:
        """Return two spellings of one column in the record's row; None if there are none.

        here: spellings that were learned from this record before.
        """
        if self.same is not None:
            return self.same
        for column, name in self.learned.items():
            spelling = here.get((self.table, column))
            if spelling is not None and not spelling.is_of_key:
                return spelling.name, name
        return None


def _first_case_duplicate(names: Collection[str]) -> tuple[str, str] | None:
    """Return the first two names that differ only in case; None if there are none."""
    seen: dict[str, str] = {}
    for name in names:
        if (other := seen.setdefault(name.lower(), name)) != name:
            return other, name
    return None


def _case_duplicate_text(one: str, other: str) -> str:
    return (
        f"its columns {one!r} and {other!r} are both {one.lower()!r} in lower case, but the catalog accepts only "
        "lower case. Rename one of them at the source, or exclude it at the connector"
    )


def _joined_rows(parts: Sequence[TableRows]) -> TableRows:
    """Return the concatenated rows. parts: at least one, all of one target."""
    if len(parts) == 1:
        return parts[0]
    begins = [0, *accumulate(len(part.offsets) for part in parts)]
    return TableRows(
        parts[0].target,
        pa.concat_batches([part.rows for part in parts]),
        np.concatenate([part.offsets for part in parts]),
        _joined_unavailable(parts, begins),
        _joined_key_changes(parts, begins),
    )


def _joined_unavailable(parts: Sequence[TableRows], begins: Sequence[int]) -> UnavailableValues | None:
    found = [
        (begin, part.unavailable) for begin, part in zip(begins, parts, strict=False) if part.unavailable is not None
    ]
    if not found:
        return None
    names = dict.fromkeys(name for _, one in found for name in one.columns)
    return UnavailableValues(
        np.concatenate([begin + one.rows for begin, one in found]),
        {
            name: np.concatenate([one.columns.get(name, np.zeros(len(one.rows), np.bool_)) for _, one in found])
            for name in names
        },
        pa.concat_batches([one.keys for _, one in found]),
    )


def _joined_key_changes(parts: Sequence[TableRows], begins: Sequence[int]) -> KeyChanges | None:
    found = [
        (begin, part.key_changes) for begin, part in zip(begins, parts, strict=False) if part.key_changes is not None
    ]
    if not found:
        return None
    return KeyChanges(
        np.concatenate([begin + one.rows for begin, one in found]),
        [change for _, one in found for change in one.changes],
        found[0][1].departure,
    )
