"""A decoder for tables whose columns are in lower case, over one that takes names as they are.

That one is given tables under the source's names. Which these are is learned from records that don't fit: a batch is
decoded up to the first of them, and on from it under the names that it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ingest.formats.base import (
    DecodedBatch,
    DecodeFailure,
    Decoder,
    FailureKind,
    JsonView,
    Skipped,
    TableRows,
    Target,
    TargetOf,
)
from ingest.formats.case_insensitive.case_duplicates import case_duplicate_text, first_case_duplicate
from ingest.formats.case_insensitive.case_mapped_target import CaseMappedTarget
from ingest.formats.case_insensitive.joined_rows import joined_rows
from ingest.formats.source_table import SourceTable
from ingest.formats.values.json_text import BadValue, read_object
from ingest.raw_batch import RawBatch

_FIRST_RECORDS = 64  # that are decoded after a change of spelling: shards of one table may spell it in turns


@dataclass(frozen=True, slots=True)
class _SourceSpelling:
    """How a record spells a column. is_of_key: in its key."""

    name: str
    is_of_key: bool


@dataclass(slots=True)
class _Found:
    """Of one `decode`, what its parts gave."""

    tables: dict[str, list[TableRows]] = field(default_factory=dict)
    failures: list[DecodeFailure] = field(default_factory=list)
    skipped: dict[Skipped, int] = field(default_factory=dict)
    unrouted: dict[SourceTable, int] = field(default_factory=dict)

    def add(self, part: DecodedBatch, spelled: Mapping[str, CaseMappedTarget], begin: int) -> None:
        """begin: the row of the batch that the part begins with."""
        for rows in part.tables:
            self.tables.setdefault(rows.target.name, []).append(spelled[rows.target.name].rows(rows))
        for failure in part.failures:
            of = None if failure.target is None else spelled[failure.target.name]
            reported = failure if of is None else of.failure(failure)
            if reported is None:
                self._count(Skipped.SCHEMA_CHANGE, 1)
            else:
                self.failures.append(replace(reported, row=begin + reported.row))
        for kind, count in part.skipped.items():
            self._count(kind, count)
        for source, row in part.unrouted.items():
            self.unrouted.setdefault(source, begin + row)

    def _count(self, kind: Skipped, count: int) -> None:
        self.skipped[kind] = self.skipped.get(kind, 0) + count

    def whole(self) -> DecodedBatch:
        tables = tuple(joined_rows(parts) for parts in self.tables.values())
        return DecodedBatch(tables, tuple(self.failures), self.skipped, self.unrouted)


class LowerCaseDecoder:
    """See `ingest.formats.base.Decoder`. Two columns of a record that have one name in lower case are a bad record.

    make: the decoder of the format.
    """

    def __init__(self, make: Callable[[TargetOf], Decoder], target_of: TargetOf) -> None:
        self._target_of = target_of
        self._spelled: dict[str, CaseMappedTarget] = {}  # by the table's name
        self._decoder = make(self._spelled_target_of)

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """See `JsonView`."""
        if isinstance(self._decoder, JsonView):
            return self._decoder.value_as_json(batch, row)
        value: bytes = batch.values[row].as_py()
        return value

    def decode(self, batch: RawBatch) -> DecodedBatch:
        found = _Found()
        begin, count = 0, len(batch)
        here: dict[tuple[str, str], _SourceSpelling] = {}  # of the record at `begin`, by (table, column)
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
            elif (twice := mismatch.twice(here)) is not None:
                found.failures.append(
                    DecodeFailure(
                        begin,
                        mismatch.failure.offset,
                        FailureKind.BAD_RECORD,
                        case_duplicate_text(*twice),
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
                # a new object also where the source writes what the table does: known decoders are found by it
                self._spelled[mismatch.table] = CaseMappedTarget(
                    spelled.whole, {**spelled.spellings, **mismatch.learned}
                )
                count = _FIRST_RECORDS
            if begin >= len(batch):
                return found.whole()

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
        """The first failure that may be one of spelling. here: what the first record taught already."""
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
            return _CaseMismatch(failure, table, self._spelled[table].learned(names), first_case_duplicate(names))
        if failure.kind is not FailureKind.BAD_RECORD or failure.source is None:
            return None
        whole = self._target_of(failure.source)
        key = part.keys[failure.row].as_py()
        if whole is None or key is None or whole.name not in self._spelled:
            return None
        try:  # a delete may have nothing but its key
            names = list(read_object(key))
        except BadValue:
            return None
        learned = self._spelled[whole.name].learned(names)
        keys = whole.schema.primary_keys
        new = {c: name for c, name in learned.items() if c in keys and (whole.name, c) not in here}
        return _CaseMismatch(failure, whole.name, new, None, is_of_key=True)


@dataclass(frozen=True, slots=True)
class _CaseMismatch:
    """learned: the table's columns that the record spells otherwise than was known.
    same: two of its columns that differ in nothing but case.
    is_of_key: whether the record's key says so, which may spell a column otherwise than the row.
    """

    failure: DecodeFailure
    table: str
    learned: Mapping[str, str]
    same: tuple[str, str] | None
    is_of_key: bool = False

    def twice(self, here: Mapping[tuple[str, str], _SourceSpelling]) -> tuple[str, str] | None:
        """Two spellings of one column in the record's row. here: what it taught before."""
        if self.same is not None:
            return self.same
        for column, name in self.learned.items():
            spelling = here.get((self.table, column))
            if spelling is not None and not spelling.is_of_key:
                return spelling.name, name
        return None
