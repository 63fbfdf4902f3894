"""What every format promises: a batch of raw records in, Arrow batches of table rows out, nothing lost in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.formats.connect_schema import SourceType
from ingest.formats.ddl_statements import ColumnStatement
from ingest.formats.online_ddl import ShadowChange
from ingest.formats.record_facts import RecordFacts
from ingest.formats.source_table import SourceTable
from ingest.raw_batch import RawBatch
from storage.errors import BadInput
from storage.merge.partial_update_options import PartialUpdateOptions
from storage.merge.sequence_groups import sequence_groups
from storage.messages.suggestions import did_you_mean
from storage.options import ChangelogProducer, MergeEngine
from storage.schema.table_schema import TableSchema
from storage.table import TableContext
from storage.types import DataField, DataType


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A table that records are decoded into.

    name: the table's full name, for messages, and to distinguish targets.
    emit_update_before: whether an update also gives its old image as a -U row. Append tables, tables whose changelog is
        their input and tables that aggregate need it; one that deduplicates by key does not, and skips the work.
    source_types: column name to what its values mean at the source, in words of `connect_schema.SPELLED`, where the
        records cannot say: `{"no": "bigint unsigned", "mask": "bits"}`. It overrules the record's own schema.
    holds_source_rows: whether the table's row of a key is the last one that the source sent, not one made of several.
    last_record_wins: whether the last record of a key alone says what its row is, a delete too: no column orders rows,
        and nothing of older ones is kept.
    needs_retractions: whether an update or delete without its old values is a bad record: what a sum counts must be
        taken out of it again. (So Java's Debezium parser, for every table: `before` must be there.)
    is_ordered_by_columns: whether columns say which row of a key is the newest (`sequence.field`, sequence groups): a
        delete that does not know them counts as the oldest, and the row would stay.
    location: the table's root, for the commands in messages; "" where there is none.
    rounded_columns: columns whose values may lose the digits that the column's type lacks.
    follows_types: whether a column becomes as wide as the records' schema says, before a value needs it.
    follows_texts: whether a column even becomes a text where the records' schema says that it is one.
    ignored_columns: columns of the records that the table lacks and is not to get; their values are passed over.
    fixed_columns: columns that stay as they are: a value that doesn't fit is a bad record.
    """

    name: str
    schema: TableSchema
    emit_update_before: bool = False
    source_types: Mapping[str, str] = field(default_factory=dict)
    needs_retractions: bool = False
    is_ordered_by_columns: bool = False
    location: str = ""
    holds_source_rows: bool = True
    last_record_wins: bool = True
    rounded_columns: frozenset[str] = frozenset()
    follows_types: bool = False
    follows_texts: bool = False
    ignored_columns: frozenset[str] = frozenset()
    fixed_columns: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        """Raise BadInput for settings that name columns which the table lacks, or which can't have them."""
        for setting, names in (("source_types", self.source_types), ("rounded_columns", self.rounded_columns)):
            for name in sorted(set(names) - self.schema.by_name.keys()):
                hint = did_you_mean(name, self.schema.names) or "."
                raise BadInput(
                    f"{setting} of {self.name}: the table has no column {name!r}{hint} Correct the name or leave it out"
                )
        for name in sorted(self.rounded_columns & set(self.schema.primary_keys)):
            raise BadInput(
                f"rounded_columns of {self.name}: {name!r} is a column of the primary key, and rows whose keys round "
                "to the same would become one. Leave it out"
            )

    @classmethod
    def of(cls, table: TableContext, source_types: Mapping[str, str], rounded_columns: Iterable[str] = ()) -> Target:
        """As the table's key and options want it."""
        is_log = not table.schema.has_primary_key or table.options.changelog_producer is ChangelogProducer.INPUT
        aggregates = _aggregates(table)
        return cls(
            table.name,
            table.schema,
            emit_update_before=is_log or aggregates,
            source_types=source_types,
            needs_retractions=aggregates,
            is_ordered_by_columns=_is_ordered_by_columns(table),
            location=table.location,
            holds_source_rows=table.options.merge_engine is MergeEngine.DEDUPLICATE,
            last_record_wins=_last_record_wins(table),
            rounded_columns=frozenset(rounded_columns),
        )


def _last_record_wins(table: TableContext) -> bool:
    options = table.options
    is_ordered = bool(options.sequence_fields) or options.ignore_delete
    return table.schema.has_primary_key and options.merge_engine is MergeEngine.DEDUPLICATE and not is_ordered


def _aggregates(table: TableContext) -> bool:
    """Whether a row adds to older ones of its key, and a delete takes from them."""
    if not table.schema.has_primary_key or table.options.ignore_delete:
        return False
    engine = table.options.merge_engine
    if engine is MergeEngine.PARTIAL_UPDATE:
        return bool(PartialUpdateOptions.of(table.schema, table.options).aggregations)
    return engine is MergeEngine.AGGREGATION


def _is_ordered_by_columns(table: TableContext) -> bool:
    if not table.schema.has_primary_key or table.options.ignore_delete:
        return False
    if table.options.merge_engine is MergeEngine.PARTIAL_UPDATE and sequence_groups(table.schema, table.options):
        return True
    return bool(table.options.sequence_fields)


TargetOf: TypeAlias = Callable[[SourceTable], Target | None]
"""The target of a source table's rows; None: its records are counted and skipped.

Called once per batch. Returns the same object as long as the table does not change: decoders cache by it.
"""


KEY_CHANGE_ID_BYTES: Final = 16


class Skipped(StrEnum):
    """Why a record is skipped on purpose: it has no row."""

    TOMBSTONE = "tombstone"
    TRANSACTION = "transaction marker"
    SCHEMA_CHANGE = "schema change"
    MESSAGE = "logical message"
    HEARTBEAT = "heartbeat"
    TRUNCATE = "truncate"
    UNROUTED = "table not configured"


class FailureKind(StrEnum):
    """Why decoding a record failed, as far as the pipeline acts differently."""

    BAD_RECORD = "bad record"  # the record is at fault: `errors.tolerance` decides
    UNKNOWN_VALUE = "unknown value"  # the record left out a value that cannot be found: likewise
    UNKNOWN_COLUMN = "unknown column"  # the table lacks a column: a dead letter would lose good rows, so stop or evolve
    NARROW_COLUMN = "narrow column"  # a good value that the column's type can't hold exactly: likewise
    SCHEMA_CHANGE = "schema change"  # no fault of the record: `schema_evolution` decides
    TRUNCATE = "truncate"  # the source emptied its table: an operator has to decide

    @property
    def is_tolerable(self) -> bool:
        """Whether a dead letter may take the record's place."""
        return self in (FailureKind.BAD_RECORD, FailureKind.UNKNOWN_VALUE)


@dataclass(frozen=True, slots=True)
class NeededColumn:
    """A column that a record needs and the table lacks, or has of a type that is too narrow.

    path: the column, or a member of it.
    found: the type that it has; None: the table lacks it.
    type: what would hold the values, and all that `found` holds; None: the record doesn't say.
    description: the source's, of a new column.
    source: what the record says of a new column.
    """

    path: tuple[str, ...]
    found: DataType | None
    type: DataType | None
    description: str | None = None
    source: SourceType | None = None


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """One record that could not be decoded; none of its rows are in the batch.

    row: its number in the raw batch (key, value and headers for a dead letter are there).
    offset: its offset.
    reason: names column, value and type where it can, without the record's position.
    columns: for UNKNOWN_COLUMN the names the table lacks, for NARROW_COLUMN those whose type is too narrow.
    needed: the same columns, with what they would have to be.
    target: the table, as it was when the record didn't fit.
    statements: for SCHEMA_CHANGE, what the source's DDL does to columns.
    shadow: for SCHEMA_CHANGE, what it does to a copy of the table instead.
    """

    row: int
    offset: int
    kind: FailureKind
    reason: str
    source: SourceTable | None = None
    columns: tuple[str, ...] = ()
    needed: tuple[NeededColumn, ...] = ()
    target: Target | None = None
    statements: tuple[ColumnStatement, ...] = ()
    shadow: ShadowChange | None = None

    @property
    def code(self) -> str:
        """Stable, for machines: `BAD_RECORD`."""
        return self.kind.name

    def describe(self, batch: RawBatch) -> str:
        """The reason after the record's position: `topic orders, partition 2, offset 17: …`."""
        return f"topic {batch.topic}, partition {batch.partition}, offset {self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class UnavailableValues:
    """Cells that a record left out because they did not change (Debezium's unavailable values): the old ones must stay.

    The cells are null in the rows; the writer of the rows looks up the old values first.

    rows (m,): rising row numbers that have such cells.
    columns: column name to (m,) flags, True where that row's cell must be filled in. Only columns with any.
    keys: m rows of the table's primary key, under which the old values lie: the row's own key, but the old one where
        the record moved a row to a new key (the row under the old key is then deleted by an earlier record, perhaps of
        another partition). No columns for a table without primary key: nothing can be looked up.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.bool_]]
    keys: pa.RecordBatch

    def only(self, columns: Mapping[str, NDArray[np.bool_]]) -> UnavailableValues | None:
        """With these flags, (m,) each; None where none is left."""
        columns = {name: flags for name, flags in columns.items() if flags.any()}
        if not columns:
            return None
        kept = np.any(list(columns.values()), axis=0)
        flags = {name: of[kept] for name, of in columns.items()}
        return UnavailableValues(self.rows[kept], flags, self.keys.filter(pa.array(kept)))


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One half of a primary key change that the source sends as two records: a delete and an insert.

    id: the same in both halves; its first byte is `is_exact`.
    is_exact: no other key change has this id. If not, those of one row between the same keys have it as well, and order
        tells them apart.
    old_key, new_key: JSON, for messages.
    """

    id: bytes
    is_exact: bool
    old_key: str
    new_key: str

    def __str__(self) -> str:
        return f"old key {self.old_key}, new key {self.new_key}"


@dataclass(frozen=True, slots=True, eq=False)
class KeyChanges:
    """Rows of a batch that are halves of key changes: -D rows leave their key, the others come to theirs.

    rows (m,): rising row numbers.
    changes: m.
    departure: what the format calls the record that deletes a row under its old key, for messages.
    """

    rows: NDArray[np.int64]
    changes: Sequence[KeyChange]
    departure: str = "record that deletes it there"


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """The n rows a raw batch holds for one table, in source order.

    rows: the table's columns in their in-memory form and order, then int8 `_VALUE_KIND`.
    offsets (n,): the source offset of each row, never falling; equal where one record gave two rows.
    unavailable: None, or what must be filled in before the rows may be written.
    key_changes: None, or which rows are halves of key changes.
    """

    target: Target
    rows: pa.RecordBatch
    offsets: NDArray[np.int64]
    unavailable: UnavailableValues | None = None
    key_changes: KeyChanges | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DecodedBatch:
    """All that a raw batch held: every record is in exactly one of `tables`, `failures` (by row), `skipped`.

    tables: one entry for each target with rows.
    skipped: how many records of each kind gave no row on purpose.
    unrouted: the source tables behind Skipped.UNROUTED, with the row of the first such record: what a pipeline that
        creates its tables derives them from.
    nbytes: of the rows.
    """

    tables: tuple[TableRows, ...]
    failures: tuple[DecodeFailure, ...]
    skipped: Mapping[Skipped, int]
    unrouted: Mapping[SourceTable, int]
    nbytes: int = field(init=False)  # counted once, by who makes it: Arrow lets go of the interpreter's lock to count

    @property
    def needs_lookups(self) -> bool:
        """Whether old rows must be looked up in a table."""
        return any(part.unavailable is not None or part.key_changes is not None for part in self.tables)

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum(part.rows.nbytes for part in self.tables))


class Decoder(Protocol):
    """Decodes batches of one format. Keeps only caches: any batch may be decoded again, and gives the same.

    Synchronous and CPU-bound; not for use by two threads at once.
    """

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Never raises for what a record holds; raises UnsupportedFeature for a target it cannot decode into."""
        ...


@runtime_checkable
class JsonView(Protocol):
    """A decoder whose records are not JSON by themselves."""

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """The value of a record that could be decoded, as the format's JSON would have it."""
        ...


@dataclass(frozen=True, slots=True)
class InferredTable:
    """What one record says of a table that does not exist yet.

    fields: ids 0, 1, 2, …; columns of the key are NOT NULL, all others nullable, whatever the source says: deletes may
        leave them out, and so does every record once the source has dropped the column.
    primary_key: empty when the record has no key.
    sources: column to what the record says of it.
    key_error: why the record's key can't be read, and so `primary_key` is empty; "" where it can, or there is none.
    """

    fields: tuple[DataField, ...]
    primary_key: tuple[str, ...]
    sources: Mapping[str, SourceType] = field(default_factory=dict)
    key_error: str = ""


class TableNotInferred(BadInput):
    """A record does not define the columns or key of a new table.

    row: row of the record in its batch
    reason: without the record's position
    """

    def __init__(self, batch: RawBatch, row: int, reason: str) -> None:
        where = f"topic {batch.topic}, partition {batch.partition}, offset {int(batch.offsets[row])}"
        super().__init__(f"{where}: {reason}. Fix the source, or create the table first (`tidelake table create`)")
        self.row = row
        self.reason = reason

    @classmethod
    def because(cls, batch: RawBatch, row: int, reason: str) -> TableNotInferred:
        """reason: what is wrong with the record."""
        return cls(batch, row, f"no table can be derived from this record: {reason}")


class Format(Protocol):
    """A format of change records with its options: all that the rest of `ingest` knows of it.

    A class for each format, in a package of its own, named in `ingest.formats.registry`. Its objects pickle: Spark's
    executors decode with them.
    """

    NAME: ClassVar[str]
    """The value of `format` in a configuration."""

    KEPT_HEADERS: ClassVar[frozenset[str]]
    """Names of the record headers that the decoder reads. Sources drop all others."""

    DECODING_WAITS: ClassVar[bool]
    """Whether `decode` may wait for something outside of the process, as a schema registry is."""

    FACTS: ClassVar[RecordFacts]
    """What its records say beside their rows: where they come from, and so on, as far as they do."""

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> Self:
        """options: `format_options` of a configuration.

        Raises BadInput for an unknown option and for an invalid value.
        """
        ...

    def decoder(self, target_of: TargetOf) -> Decoder: ...

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """The columns and the key of a table that does not exist yet, from the record in that row.

        Raises TableNotInferred for a record that doesn't say them.
        """
        ...


class OpenedFormat(Protocol):
    """What a pipeline asks of a format. See `Format`."""

    @property
    def KEPT_HEADERS(self) -> frozenset[str]: ...  # noqa: N802 - as there

    @property
    def DECODING_WAITS(self) -> bool: ...  # noqa: N802 - as there

    @property
    def FACTS(self) -> RecordFacts: ...  # noqa: N802 - as there

    def decoder(self, target_of: TargetOf) -> Decoder: ...

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable: ...
