"""The contract of all formats: a decoder turns a batch of raw records into Arrow batches of table rows.

No record is lost silently: each one gives rows, a failure or a count of skipped records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tidelake.errors import BadInput
from tidelake.ingest.formats.connect_schema import SourceType
from tidelake.ingest.formats.ddl_statements import ColumnStatement
from tidelake.ingest.formats.document_ids import DocumentIds
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.online_ddl import ShadowChange
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.merge.partial_update_options import PartialUpdateOptions
from tidelake.storage.merge.sequence_groups import sequence_groups
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.model.options import ChangelogProducer, MergeEngine
from tidelake.storage.model.schema.table_schema import TableSchema
from tidelake.storage.model.table import TableContext
from tidelake.storage.model.types import DataField, DataType


@dataclass(frozen=True, slots=True)
class VersionColumns:
    """The columns of a table that keeps the versions of rows (`mode: scd2`).

    key: identify a row of the source. With `valid_from` they are the primary key, which may have computed columns, too.
    valid_from: the time of the change that made a version.
    valid_to: the time of the change that ended it; null if none has.
    current: whether no change has ended it.
    """

    key: tuple[str, ...]
    valid_from: str
    valid_to: str
    current: str


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A table that records are decoded into.

    name: the table's full name. Messages use it, and it identifies the target.
    emit_update_before: whether an update also gives its old image as a -U row. Append tables, tables with
        `changelog-producer = input` and tables that aggregate need it. A table that deduplicates by key does not.
    source_types: column name to the meaning of its values at the source, if records don't declare it. The words are
        those of `connect_schema.SPELLED`: `{"no": "bigint unsigned", "mask": "bits"}`. A word overrules the record's
        own schema.
    holds_source_rows: whether the table's row of a key is the last one that the source sent, not merged from several.
    last_record_wins: whether the last record of a key, which may be a delete, decides its row alone: no column orders
        the rows of a key, and no value of an older row is kept.
    needs_retractions: whether an update or delete without its old values is a bad record, because an aggregate must
        retract the old values. (Java's Debezium parser requires `before` for every table.)
    is_ordered_by_columns: whether columns decide which row of a key is the newest (`sequence.field`, sequence groups).
        A delete without values in these columns counts as the oldest row, so it would delete nothing.
    location: the table's root, for the commands in messages; "" if it has none.
    rounded_columns: columns whose values may lose the digits that the column's type lacks.
    follows_types: whether a column is widened to the type in the records' schema before any value needs it.
    follows_texts: whether a column also becomes a text column if the records' schema declares a text.
    ignored_columns: columns of the records that the table lacks and must not get. Their values are ignored.
    fixed_columns: columns whose type never changes. A record with a value that doesn't fit is a bad record.
    compares_keys: whether a record whose key has a column outside of the primary key is refused.
    key_columns: columns of the table that only the records' keys have, not their row images.
    deleted_at_column: the column with the time of the delete, if deleted rows stay in the table; "" if they don't.
    is_history: whether the table keeps each change as a row.
    versions: the columns of the versions of rows, if the table keeps them (`mode: scd2`).
    document_ids: the ids of MongoDB's documents that were read for the table. Decoders add to it.
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
    compares_keys: bool = False
    key_columns: tuple[str, ...] = ()
    deleted_at_column: str = ""
    is_history: bool = False
    versions: VersionColumns | None = None
    document_ids: DocumentIds = field(default_factory=DocumentIds, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Raise BadInput for a setting that names a column which the table lacks, or to which it can't apply."""
        for setting, names in (
            ("source_types", self.source_types),
            ("rounded_columns", self.rounded_columns),
            ("key_columns", self.key_columns),
        ):
            for name in sorted(set(names) - self.schema.by_name.keys()):
                hint = did_you_mean(name, self.schema.names) or "."
                raise BadInput(
                    f"{setting} of {self.name}: the table has no column {name!r}{hint} Correct the name or leave it out"
                )
        for name in sorted(self.rounded_columns & set(self.schema.primary_keys)):
            raise BadInput(
                f"rounded_columns of {self.name}: {name!r} is a column of the primary key, and rows with different "
                "keys could get the same rounded key. Leave it out"
            )

    @property
    def keeps_deleted_rows(self) -> str:
        """The setting by which deleted rows stay in the table; "" if they don't."""
        if self.is_history:
            return "mode: append"
        if self.versions is not None:
            return "mode: scd2"
        return "deletes: soft" if self.deleted_at_column else ""

    @classmethod
    def of(
        cls,
        table: TableContext,
        source_types: Mapping[str, str],
        rounded_columns: Iterable[str] = (),
        *,
        key_from_records: bool = True,
        key_columns: Iterable[str] = (),
    ) -> Target:
        """Return the target for a table, derived from its key and options.

        key_from_records: whether the keys of records identify the rows of the table.
        """
        holds_source_rows = table.options.merge_engine is MergeEngine.DEDUPLICATE
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
            holds_source_rows=holds_source_rows,
            last_record_wins=_last_record_wins(table),
            rounded_columns=frozenset(rounded_columns),
            compares_keys=key_from_records and holds_source_rows and table.schema.has_primary_key,
            key_columns=tuple(key_columns),
        )


def _last_record_wins(table: TableContext) -> bool:
    options = table.options
    is_ordered = bool(options.sequence_fields) or options.ignore_delete
    return table.schema.has_primary_key and options.merge_engine is MergeEngine.DEDUPLICATE and not is_ordered


def _aggregates(table: TableContext) -> bool:
    """Return whether a row is aggregated with older rows of its key, so that a delete must retract its values."""
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
"""Returns the target of a source table's rows. With None, its records are counted and skipped.

A decoder calls it once per batch and source table. The function returns the same object as long as the table does not
change, because decoders cache by that object.
"""


KEY_CHANGE_ID_BYTES: Final = 16


class Skipped(StrEnum):
    """Why a record gives no row and is skipped on purpose."""

    TOMBSTONE = "tombstone"
    TRANSACTION = "transaction marker"
    SCHEMA_CHANGE = "schema change"
    MESSAGE = "logical message"
    HEARTBEAT = "heartbeat"
    TRUNCATE = "truncate"
    UNROUTED = "table not configured"


class FailureKind(StrEnum):
    """Why decoding a record failed. Kinds are distinct if the pipeline handles them differently."""

    BAD_RECORD = "bad record"  # the record is wrong: `errors.tolerance` decides
    UNKNOWN_VALUE = "unknown value"  # the record left out a value that can't be looked up: `errors.tolerance` decides
    UNKNOWN_COLUMN = "unknown column"  # the table lacks a column: a dead letter would lose good rows, so stop or evolve
    NARROW_COLUMN = "narrow column"  # the column's type can't hold a good value exactly: stop or evolve, as above
    WIDER_KEY = "wider key"  # the record's key has a column outside of the table's: a dead letter would lose good rows
    SCHEMA_CHANGE = "schema change"  # the record is right: `schema_evolution` decides
    TRUNCATE = "truncate"  # the source emptied its table: an operator has to decide

    @property
    def is_tolerable(self) -> bool:
        """Whether the record may become a dead letter."""
        return self in (FailureKind.BAD_RECORD, FailureKind.UNKNOWN_VALUE)


WITHHELD_REASON: Final = (
    "the record doesn't fit, and is not shown because tables of the pipeline mask columns. Look it up at the source"
)


@dataclass(frozen=True, slots=True)
class NeededColumn:
    """A column that a record needs. The table lacks it, or its type is too narrow.

    path: the column, or a field nested in it.
    found: its type in the table; None if the table lacks the column.
    type: a type that holds the record's values and all values of `found`; None if the record doesn't declare one.
    description: the source's description of a new column.
    source: the type that the record declares for a new column.
    """

    path: tuple[str, ...]
    found: DataType | None
    type: DataType | None
    description: str | None = None
    source: SourceType | None = None


@dataclass(frozen=True, slots=True)
class DecodeFailure:
    """One record that could not be decoded; none of its rows are in the batch.

    row: the record's row in the raw batch, where a dead letter finds its key, value and headers.
    offset: the record's offset.
    reason: names column, value and type if they are known. It does not contain the record's position.
    columns: for UNKNOWN_COLUMN the columns that the table lacks, for NARROW_COLUMN those whose type is too narrow.
    needed: the same columns, with the types that would hold the values.
    target: the table, as it was when the record was decoded.
    statements: for SCHEMA_CHANGE, the column changes of the source's DDL.
    shadow: for SCHEMA_CHANGE, the DDL's change to a copy of the table, if it changes a copy.
    is_withheld: whether the record must not be kept or shown, because its table masks columns.
    table: the name of the table that can't take the record; None if it is not known, or `target` has it.
    is_shared: whether the record's source table may have other tables, which may be able to take the record.
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
    is_withheld: bool = False
    table: str | None = None
    is_shared: bool = False

    @property
    def table_name(self) -> str | None:
        """The name of the table that can't take the record; None if it is not known."""
        return self.table if self.target is None else self.target.name

    @property
    def code(self) -> str:
        """The stable code of the failure's kind: `BAD_RECORD`."""
        return self.kind.name

    def withheld(self) -> DecodeFailure:
        """Return the failure of a record that must not be kept or shown. Its reason may quote a value, so it is lost,
        unless it is about columns only.
        """
        is_of_columns = self.kind in (FailureKind.UNKNOWN_COLUMN, FailureKind.SCHEMA_CHANGE, FailureKind.TRUNCATE)
        return replace(self, reason=self.reason if is_of_columns else WITHHELD_REASON, is_withheld=True)

    def describe(self, batch: RawBatch) -> str:
        """Return the record's position and the reason: `topic orders, partition 2, offset 17: …`."""
        return f"topic {batch.topic}, partition {batch.partition}, offset {self.offset}: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class UnavailableValues:
    """Values that records left out because they did not change (Debezium's unavailable values).

    The values are null in the rows. Before a writer writes the rows, it looks up the old values and fills them in.

    rows (m,): numbers of the rows that lack values, ascending.
    columns: column name to (m,) flags, True if that row's value must be filled in. Only columns with such rows.
    keys: m rows of the table's primary key, under which the old values are looked up. It is the row's own key, except
        for a moved row: then it is the old key, whose row an earlier record deletes, perhaps in another partition.
        It has no columns for a table without primary key, in which nothing can be looked up.
    """

    rows: NDArray[np.int64]
    columns: Mapping[str, NDArray[np.bool_]]
    keys: pa.RecordBatch

    def only(self, columns: Mapping[str, NDArray[np.bool_]]) -> UnavailableValues | None:
        """Return the unavailable values with these flags, (m,) each; None if no flag is True."""
        columns = {name: flags for name, flags in columns.items() if flags.any()}
        if not columns:
            return None
        kept = np.any(list(columns.values()), axis=0)
        columns = {name: flags[kept] for name, flags in columns.items()}
        return UnavailableValues(self.rows[kept], columns, self.keys_of(kept))

    def keys_of(self, kept: NDArray[np.bool_]) -> pa.RecordBatch:
        """Return the keys of the marked rows, (m,). Without a primary key there are no columns, which Arrow can't
        filter.
        """
        return self.keys.filter(pa.array(kept)) if self.keys.num_columns else self.keys


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One half of a primary key change that the source sends as two records: a delete and an insert.

    id: the same in both halves. Its first byte is `is_exact`.
    is_exact: whether no other key change has this id. If not, other changes of the same row between the same two keys
        have the same id, and only the order of the records distinguishes them.
    old_key: JSON, for messages.
    new_key: JSON, for messages.
    """

    id: bytes
    is_exact: bool
    old_key: str
    new_key: str

    def __str__(self) -> str:
        return f"old key {self.old_key}, new key {self.new_key}"


@dataclass(frozen=True, slots=True, eq=False)
class KeyChanges:
    """Rows of a batch that are halves of key changes. A -D row deletes the old key, any other row writes the new key.

    rows (m,): row numbers, ascending.
    changes: the key change of each of the m rows.
    departure: the format's name for the record that deletes a row under its old key, for messages.
    """

    rows: NDArray[np.int64]
    changes: Sequence[KeyChange]
    departure: str = "record that deletes it there"


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """The n rows of a raw batch for one table, in source order.

    rows: the table's columns in their order and in-memory types, then int8 `_VALUE_KIND`.
    offsets (n,): the source offset of each row, ascending. Rows of one record have the same offset.
    unavailable: values that must be filled in before the rows may be written; None if there are none.
    key_changes: the rows that are halves of key changes; None if there are none.
    """

    target: Target
    rows: pa.RecordBatch
    offsets: NDArray[np.int64]
    unavailable: UnavailableValues | None = None
    key_changes: KeyChanges | None = None


@dataclass(frozen=True, slots=True, eq=False)
class DecodedBatch:
    """The result of decoding a raw batch. For each of its tables, a record is in exactly one of `tables`,
    `failures` (by row), `skipped`.

    tables: one entry for each target with rows.
    skipped: how many records of each kind were skipped on purpose.
    unrouted: the source tables of the records counted as Skipped.UNROUTED, with the row of the first such record. A
        pipeline that creates its tables derives them from these records.
    unrouted_records: how many records each of these source tables has.
    only_deleted: those of the source tables of which the batch has only deletes. They create no table: there is nothing
        to delete, and a delete may have only the key.
    nbytes: bytes of the rows.
    """

    tables: tuple[TableRows, ...]
    failures: tuple[DecodeFailure, ...]
    skipped: Mapping[Skipped, int]
    unrouted: Mapping[SourceTable, int]
    unrouted_records: Mapping[SourceTable, int] = field(default_factory=dict)
    only_deleted: frozenset[SourceTable] = frozenset()
    nbytes: int = field(init=False)  # computed once, at creation: Arrow releases the GIL each time it counts

    @property
    def creating(self) -> Mapping[SourceTable, int]:
        """Source tables without a target, with the row of the first record that can create a table for them."""
        return {source: row for source, row in self.unrouted.items() if source not in self.only_deleted}

    @property
    def needs_lookups(self) -> bool:
        """Whether old rows must be looked up in a table before the rows can be written."""
        return any(
            part.unavailable is not None
            or part.key_changes is not None
            or part.target.deleted_at_column
            or part.target.versions is not None
            for part in self.tables
        )

    def __post_init__(self) -> None:
        object.__setattr__(self, "nbytes", sum(part.rows.nbytes for part in self.tables))


class Decoder(Protocol):
    """Decodes batches of one format. Its only state is caches: decoding a batch again gives the same result.

    Synchronous and CPU-bound. Two threads must not use a decoder at the same time.
    """

    def decode(self, batch: RawBatch) -> DecodedBatch:
        """Return the rows of a batch, its failures and its skipped records.

        No content of a record makes it raise. Raises UnsupportedFeature for a target that the format can't decode into.
        """
        ...


@runtime_checkable
class JsonView(Protocol):
    """A decoder whose records are not JSON, and can be converted to JSON."""

    def value_as_json(self, batch: RawBatch, row: int) -> bytes:
        """Return the value of a record that could be decoded, in the form of the format's JSON."""
        ...


@runtime_checkable
class RegistryUser(Protocol):
    """A format whose records refer to schemas in a schema registry.

    registry_urls: the registry's base URLs; empty if the options name none.
    """

    @property
    def registry_urls(self) -> tuple[str, ...]: ...

    def check_registry(self, limit_s: float) -> None:
        """Ask the registry for a schema. Raises RegistryUnavailable without an answer in `limit_s` seconds."""
        ...


@dataclass(frozen=True, slots=True)
class InferredTable:
    """The columns and key of a table that does not exist yet, derived from one record.

    fields: their ids are 0, 1, 2, …. Columns of the key are NOT NULL. All others are nullable, even if the source
        declares NOT NULL: deletes may leave them out, and all records do after the source has dropped the column.
    primary_key: empty if the record has no key, or an unreadable one.
    sources: column name to the type that the record declares.
    key_error: why the record's key can't be read; "" if it can, or if the record has no key.
    outside: column name to declared type of the columns of the record's key that its row lacks.
    """

    fields: tuple[DataField, ...]
    primary_key: tuple[str, ...]
    sources: Mapping[str, SourceType] = field(default_factory=dict)
    key_error: str = ""
    outside: Mapping[str, SourceType] = field(default_factory=dict)


class Format(Protocol):
    """A format of change records with its options. The rest of `ingest` uses formats only through this protocol.

    Each format has a class in its own package, which `tidelake.ingest.formats.registry` names. Objects of the class can
    be pickled, because Spark's executors decode with them.
    """

    NAME: ClassVar[str]
    """The value of `format` in a configuration."""

    KEPT_HEADERS: ClassVar[frozenset[str]]
    """Names of the record headers that the decoder reads. Sources drop all others."""

    DECODING_BLOCKS: ClassVar[bool]
    """Whether `decode` may wait for an external service, such as a schema registry."""

    CAPABILITIES: ClassVar[FormatCapabilities]
    """What can be read from its records in addition to rows, such as their origin."""

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> Self:
        """Return the format with the `format_options` of a configuration.

        Raises BadInput for an unknown option and for an invalid value.
        """
        ...

    def decoder(self, target_of: TargetOf) -> Decoder: ...

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        """Return the columns and the key of a table that does not exist yet, derived from the record in that row.

        Raises TableNotInferred for a record that doesn't declare them.
        """
        ...


class OpenedFormat(Protocol):
    """The part of `Format` that a pipeline needs from a format object."""

    @property
    def KEPT_HEADERS(self) -> frozenset[str]: ...  # noqa: N802 - the name in `Format`

    @property
    def DECODING_BLOCKS(self) -> bool: ...  # noqa: N802 - the name in `Format`

    @property
    def CAPABILITIES(self) -> FormatCapabilities: ...  # noqa: N802 - the name in `Format`

    def decoder(self, target_of: TargetOf) -> Decoder: ...

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable: ...
