"""All settings of an ingest configuration, with their defaults.

This module only has names, types and defaults. `config` reads the values from files, the environment and flags. The
names show the units: sizes are in bytes, times in milliseconds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from tidelake.ingest.secrets import RedactedOptions, Secret
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings, Name, NotNegative, Positive

TABLE_NAME_PATTERN: Final = r"^[^.]+\.[^.]+$"
PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")  # in the name of an entry that stands for many tables


SchemaChangeName = Literal[
    "add", "add.column", "alter", "alter.column.type", "rename", "rename.column", "drop", "drop.column", "column"
]


class SchemaEvolutionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to a table when the source's columns change.

    mode: as Flink CDC's `schema.change.behavior`. `exception` stops at the first change. `evolve` applies the change,
        and stops if it can't. `try_evolve` applies it if it can, and otherwise continues as `ignore`. `lenient` is
        `evolve`, but no column is dropped or renamed: a new one is added next to it. `ignore` does not change the
        table: columns that it lacks are skipped, and values that don't fit count as records that can't be decoded
    include: changes to apply: `add.column`, `alter.column.type` (to a wider one), `rename.column`, `drop.column`, or
        all with a common word (`drop`). Others are ignored
    exclude: changes to ignore even if included
    rewrite_keys_max_bytes: a column of the key can only become wider if all rows are rewritten. The pipeline does this
        by itself for tables up to this size, and writes nothing else meanwhile. A larger table stops, with the command
        that rewrites it
    """

    mode: Literal["exception", "evolve", "try_evolve", "lenient", "ignore"] = "evolve"
    include: tuple[SchemaChangeName, ...] = ("add.column", "alter.column.type")
    exclude: tuple[SchemaChangeName, ...] = ()
    rewrite_keys_max_bytes: NotNegative = 128 << 20


class SourceTablesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The source tables of an entry that stands for many tables, and the names of their tables. Regular expressions
    must match a whole name. Names of source tables are those in the records, without database and schema.

    including_tables: names of tables to take; default: all
    excluding_tables: names of tables to leave out, even if included
    including_dbs: names of databases to take; default: all
    excluding_dbs: names of databases to leave out, even if included
    mapping: name of a source table, in any case, to the table part of the name it gets; others are named by the
        entry's `name`
    prefix_of_db: name of a source database, in any case, to the text before `{table}` instead of that in `name`
    suffix_of_db: name of a source database, in any case, to the text after `{table}` instead of that in `name`
    merge_shards: merge tables with one name in several databases; `false` makes `{table}` stand for `database_table`
    partition_by: name of a source table to its partition columns; others have those of the entry
    lower_case: change the values of placeholders to lower case; always so if the catalog accepts no upper case
    topic_parts: regular expression of whole topics with named groups, as `(?P<region>[a-z]+)\\..*`. Each group is a
        placeholder of `name` (`{region}`). Other topics are left out
    """

    including_tables: Name = ".*"
    excluding_tables: Name | None = None
    including_dbs: Name = ".*"
    excluding_dbs: Name | None = None
    mapping: Mapping[Name, Name] = {}
    prefix_of_db: Mapping[Name, str] = {}
    suffix_of_db: Mapping[Name, str] = {}
    merge_shards: bool = True
    partition_by: Mapping[Name, list[Name]] = {}
    lower_case: bool = False
    topic_parts: Name | None = None


TargetMs = Annotated[int, msgspec.Meta(ge=200, le=86_400_000)]


class FreshnessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fresh the table is kept. See [freshness](performance.md#freshness-as-a-promise).

    target_ms: age of a record when its row becomes visible, at most. Checkpoints are the pipeline's, so the smallest
        target of all its tables rules
    """

    target_ms: TargetMs


class PipelineFreshnessSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How fresh the tables are kept. With a target the pipeline chooses when it commits and compacts, and says what it
    changed and why. See [freshness](performance.md#freshness-as-a-promise).

    target_ms: age of a record when its row becomes visible, at most; for tables without a target of their own. Default:
        no target, and a checkpoint every `checkpoint.interval_ms`
    price_an_hour_max: what the requests of an hour may cost, by `request_prices`; in an object store only. The pipeline
        commits less often than the target needs rather than exceed it
    """

    target_ms: TargetMs | None = None
    price_an_hour_max: Annotated[float, msgspec.Meta(gt=0)] | None = None


class BootstrapSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the source's initial snapshot gets into a table that is empty. See
    [the initial snapshot](bootstrap.md).

    enabled: `true` sorts the rows of the snapshot on disk, and commits them once, straight to the highest level of the
        table. Until then readers see none of them
    idle_ms: the snapshot counts as complete if it has sent no row for so long. The first record of the stream ends it
        at once
    duration_ms_max: longest time until the commit; after that the rest of the snapshot is merged as other rows are
    bytes_max: bytes of rows until the commit, as they are in memory. On disk they take less
    """

    enabled: bool = False
    idle_ms: Positive = 10_000
    duration_ms_max: Positive = 3_600_000
    bytes_max: Positive = 16 << 30


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the pipeline, or many.

    name: `database.table`. With `{table}`, `{schema}`, `{database}` or `{topic}` in its table part it stands for as
        many tables as records name; each is created at the first record that names it
    match: shell patterns of source tables (`shop.public.orders`, `public.orders`, `orders`) and topics; one must
        match. Default: the table part of `name`; for an entry that stands for many tables: all. Records that several
        entries of single tables match are written to each of these tables
    topics: shell patterns of the topics that feed the table; default: all. With many topics it keeps positions short
    primary_key: primary key of the table if it is created; default: the key of its records
    key_from_records: `false` creates the table without a key if `primary_key` is not set, even if the records have one.
        Records whose key has columns outside of the table's key are then accepted, too: they may share a row
    key_columns: columns that only the keys of records have (`__dbz__physicalTableIdentifier`). They become columns of
        the table, and a part of its key if it is created
    partition_by: partition columns of the table if it is created
    options: table options of the table if it is created. An existing table is not changed: if it contradicts
        `primary_key`, `partition_by` or `options`, `plan` says so, and `run` refuses differences that would change the
        rows, the changelog or the layout
    shared_with: commit users (other pipelines, Spark queries) that read the same topics into the table, but write other
        records than this pipeline. Without it, the pipeline refuses to start if others have read records that it would
        read
    source_types: column to its type at the source, if records don't say (`bigint unsigned`)
    rounded_columns: columns whose values may lose digits that the column's type can't hold; others stop the pipeline
    columns: column to SQL type, for columns that are created with the table or added later (`amount: DECIMAL(18, 2)`)
    type_mapping: for other new columns, words of Paimon's `type_mapping`; see [columns](schema-evolution.md)
    computed_columns: column to a call of one of Paimon's functions (`dt: date_format(created, yyyy-MM-dd)`)
    metadata_columns: columns that say where a row came from (`topic`, `offset`, `op_ts`, …)
    metadata_column_prefix: prefix of their names
    keep_columns: columns of the records to take; default: all
    drop_columns: columns of the records to leave out
    rename_columns: column of the records to its name in the table. All other settings name columns of the table
    masks: column to what remains of its values: `hash` (with `mask_salt`), `redact`, `null`, `truncate(n)` (the first
        n characters) or `keep_last(n)`; see [personal data](shaping-tables.md#personal-data)
    filter: condition as SQL text; the table has the rows that meet it, and loses those that no longer do
    mode: `apply` makes each change to the table. `append` adds a row for each change, with what it did (`op`), where
        its record was and when it was made: a history in a table without a key. `scd2` keeps each version of a row,
        with the time from which and to which it was valid
    valid_from_column: for `scd2`, name of the column with the time of the change that made a version. It is the last
        column of the primary key
    valid_to_column: for `scd2`, name of the column with the time of the change that ended a version; null until then
    current_column: for `scd2`, name of the column that is true for versions that no change has ended
    deletes: `hard` deletes rows. `soft` keeps them, with the time of the delete in `deleted_at_column`
    deleted_at_column: name of that column
    paused: whether the table is paused: its records wait in the quarantine until this is false again
    schema_evolution: what happens to the table when the source's columns change; default: as for the pipeline
    freshness: how fresh the table is kept; default: as for the pipeline
    bootstrap: how the source's initial snapshot gets into the table; default: as for the pipeline
    source_tables: for an entry that stands for many tables: its source tables, and the names of their tables
    """

    name: Annotated[str, msgspec.Meta(pattern=TABLE_NAME_PATTERN)]
    match: Name | Annotated[list[Name], msgspec.Meta(min_length=1)] | None = None
    topics: Name | list[Name] = []
    primary_key: list[Name] = []
    key_from_records: bool = True
    key_columns: list[Name] = []
    partition_by: list[Name] = []
    options: Mapping[str, str | int | float | bool] = {}
    shared_with: Name | list[Name] = []
    source_types: Mapping[str, str] = {}
    rounded_columns: list[Name] = []
    columns: Mapping[Name, Name] = {}
    type_mapping: list[Name] = []
    computed_columns: Mapping[Name, Name] = {}
    metadata_columns: list[Name] = []
    metadata_column_prefix: str = ""
    keep_columns: list[Name] = []
    drop_columns: list[Name] = []
    rename_columns: Mapping[Name, Name] = {}
    masks: Mapping[Name, Name] = {}
    filter: Name | None = None
    mode: Literal["apply", "append", "scd2"] = "apply"
    valid_from_column: Name = "valid_from"
    valid_to_column: Name = "valid_to"
    current_column: Name = "current"
    deletes: Literal["hard", "soft"] = "hard"
    deleted_at_column: Name = "deleted_at"
    paused: bool = False
    schema_evolution: SchemaEvolutionSettings | None = None
    freshness: FreshnessSettings | None = None
    bootstrap: BootstrapSettings | None = None
    source_tables: SourceTablesSettings | None = None

    @property
    def is_template(self) -> bool:
        """Whether this entry stands for many tables."""
        return PLACEHOLDER.search(self.name) is not None

    @property
    def takes_key_of_records(self) -> bool:
        """Whether the keys of records identify the rows of the table. In a history of all changes they don't."""
        return self.key_from_records and self.mode != "append"

    def key_of_rows(self, key_of_records: Sequence[str]) -> Sequence[str]:
        """Return the columns that identify a row of the source, in a table that is created."""
        key = self.primary_key or (key_of_records if self.takes_key_of_records else ())
        return tuple(name for name in key if self.mode != "scd2" or name != self.valid_from_column)

    def key_of_new(self, key_of_records: Sequence[str]) -> Sequence[str]:
        """Return the primary key of the table, if it is created."""
        key = self.key_of_rows(key_of_records)
        return (*key, self.valid_from_column) if key and self.mode == "scd2" else key

    def options_of_new(self, key_of_records: Sequence[str]) -> dict[str, str]:
        """Return the options of the table, if it is created. All versions of a row are in one bucket."""
        options = self.raw_options
        key = [name for name in self.key_of_rows(key_of_records) if name not in self.partition_by]
        if self.mode == "scd2" and key and options.get("bucket", "-1") not in ("-1", "-2"):
            options.setdefault("bucket-key", ",".join(key))
        return options

    @property
    def raw_options(self) -> dict[str, str]:
        """The options as a table stores them: as text, with booleans as in YAML and Java."""
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in self.options.items()}

    @property
    def match_patterns(self) -> list[str]:
        if self.match is None:
            return ["*"] if self.is_template else [self.name.partition(".")[2]]
        return [self.match] if isinstance(self.match, str) else self.match

    @property
    def other_users(self) -> frozenset[str]:
        """Commit users whose positions do not concern this pipeline's records."""
        return frozenset([self.shared_with] if isinstance(self.shared_with, str) else self.shared_with)

    @property
    def topic_patterns(self) -> list[str]:
        return ([self.topics] if isinstance(self.topics, str) else self.topics) or ["*"]


class CheckpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When written rows are committed: at the first of these.

    interval_ms: time from the start of one checkpoint to the start of the next; after a pause, from the first record.
        Refused beside a target of `freshness`, which chooses the interval
    bytes_max: bytes of records
    whole_transactions: never commit between records of one partition that belong to one transaction of the source.
        Needs debezium-json with the connector's `provide.transaction.metadata`
    transaction_ms_max: how long records wait for the rest of their transaction; after that they may be committed in
        parts, which the log and the metrics show
    transaction_bytes_max: bytes of records that wait for the rest of their transactions, over all partitions
    """

    interval_ms: Positive = 10_000
    bytes_max: Positive = 512 << 20
    whole_transactions: bool = False
    transaction_ms_max: Positive = 5_000
    transaction_bytes_max: Positive = 64 << 20


class DeadLetterTableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters as rows of an append table in the warehouse, which is created if it does not exist.

    table: `database.table`
    """

    table: Annotated[str, msgspec.Meta(pattern=TABLE_NAME_PATTERN)]


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What happens to records that can't be decoded.

    tolerance: `none` stops the pipeline at the first such record; a number, if one run has more than that many (dead
        letters of earlier runs don't count, so the next start gets further); `all`, never. Truncates that can't be
        applied stop the pipeline in any case. `schema_evolution` decides about columns that a table lacks and values
        that need a wider column
    dead_letters: where tolerated records are kept: a folder, or `{table: database.table}`; default: the folder
        `<pipeline>.dead-letters` in the warehouse
    log_include_messages: log the reason of a dead letter, which may quote the record
    waiting_ms_max: how long a partition may wait for a value from a record of another partition; after that its record
        counts as one that can't be decoded
    waiting_bytes_max: bytes of records held back while partitions wait; beyond it the waiting records count as ones
        that can't be decoded
    """

    tolerance: Literal["none", "all"] | NotNegative = "none"
    dead_letters: Name | DeadLetterTableSettings | None = None
    log_include_messages: bool = False
    waiting_ms_max: Positive = 60_000
    waiting_bytes_max: Positive = 64 << 20


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables that fail: the others continue, and the records of a failed table wait on disk.

    enabled: `false` stops the pipeline instead
    location: where the records wait; default: `<pipeline>.quarantine` in the warehouse
    bytes_max: bytes of waiting records of all tables; beyond it the pipeline stops
    table_bytes_max: bytes of waiting records of one table
    retry_ms_min: time until the first retry of a failed table; each further one waits twice as long
    retry_ms_max: longest time between two retries
    """

    enabled: bool = True
    location: Name | None = None
    bytes_max: Positive = 8 << 30
    table_bytes_max: Positive = 2 << 30
    retry_ms_min: Positive = 1_000
    retry_ms_max: Positive = 300_000


class MovedRowsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows whose primary key changed at the source. They are kept from the record that deletes them under the old key
    to the record that inserts them under the new key, because the second one may leave out values that did not change.

    keep_ms: how long such a row is kept. If the new key arrives later, its record counts as one that can't be decoded
        if it leaves out values
    bytes_max: bytes of kept rows of all tables; beyond it the oldest are dropped
    """

    keep_ms: Positive = 86_400_000
    bytes_max: Positive = 64 << 20


class WriteBufferSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory and disk for rows before they are written to files.

    memory_bytes: memory of all write buffers of all tables
    queue_bytes: memory of each queue between reading, decoding and writing
    spill_directory: where rows beyond the memory go; default: the system's directory for temporary files
    """

    memory_bytes: Positive = 256 << 20
    queue_bytes: Positive = 16 << 20
    spill_directory: Path | None = None


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP endpoint of a running pipeline: `/metrics` for Prometheus, `/live` and `/ready` for probes, `/status` as
    JSON, and a status page at `/`. It has no authentication. See [operations](operations.md).

    port: port of the endpoint; default: no endpoint. 0 takes a free port, which the log names
    host: address of the endpoint; `0.0.0.0` allows other machines
    tables_max: number of tables with separate metrics; the others are combined in one series, `_other`
    partitions_max: number of topic partitions with separate metrics
    """

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    host: Name = "127.0.0.1"
    tables_max: Positive = 500
    partitions_max: Positive = 2_000


class LineageSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenLineage events of the pipeline's runs: `pip install tidelake[openlineage]`. Without this section none are
    sent. See [lineage](lineage.md).

    transport: the `transport` of OpenLineage's Python client, unchanged, such as `{type: http, url: …}`; default: what
        its variables (`OPENLINEAGE_URL`, `OPENLINEAGE__TRANSPORT`) and its file `openlineage.yml` say
    namespace: namespace of the job; default: that of `OPENLINEAGE_NAMESPACE`, or `default`
    name: name of the job; default: the name of the pipeline
    interval_ms: least time between two RUNNING events
    queue_events: how many events may wait to be sent; more are dropped, and counted
    close_ms: how long the end of a run waits for events that are not sent yet
    """

    transport: Mapping[str, Any] = {}
    namespace: Name | None = None
    name: Name | None = None
    interval_ms: Positive = 60_000
    queue_events: Positive = 100
    close_ms: NotNegative = 5_000


class RequestPricesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the object store charges for requests. `tidelake ingest plan shop.yaml --sample N` estimates with it, and
    `freshness` counts with it. The defaults are those of Amazon S3 Standard in us-east-1. Deletions are free there.

    put_per_million: price of a million PUT, COPY or LIST requests
    get_per_million: price of a million GET or HEAD requests
    currency: the currency of these prices
    """

    put_per_million: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    get_per_million: Annotated[float, msgspec.Meta(ge=0)] = 0.4
    currency: Name = "USD"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pipeline.

    pipeline: its name, and the commit user of its snapshots. Never change it: the tables hold the position under it
    warehouse: the directory of all tables, or its address in an object store (`s3://bucket/lake`)
    warehouse_options: options of the catalog and the object store, as for `tidelake.open_catalog`
    source: where records are read from
    format: format of the records, never guessed: {formats}; see [formats](formats.md)
    format_options: options of the format
    tables: the tables to write
    mask_salt: key of the hashes that `masks` of tables make; best set as `TIDELAKE_MASK_SALT`. Never change it: equal
        values would get other hashes
    schema_evolution: what happens to the tables when the source's columns change; default: columns are added and
        widened (`mode: evolve`)
    checkpoint: when rows are committed
    freshness: how old a record may be when its row becomes visible
    bootstrap: how the source's initial snapshot gets into tables that are empty, as far as these can take it
    errors: what happens to records that can't be decoded
    moved_rows: how long rows are kept whose primary key changes
    quarantine: what happens to tables that fail
    write: memory and disk for rows before they are written to files
    metrics: the HTTP endpoint with metrics, health and status of the pipeline
    lineage: OpenLineage events of its runs; default: none
    request_prices: what the object store charges for requests, for `ingest plan` and `freshness`
    """

    pipeline: Name
    warehouse: Name
    warehouse_options: RedactedOptions = msgspec.field(default_factory=RedactedOptions)
    source: FolderSettings | KafkaSettings
    format: Name = "debezium-json"
    format_options: Mapping[str, Any] = {}
    tables: Annotated[list[TableSettings], msgspec.Meta(min_length=1)]
    mask_salt: Secret | None = None
    schema_evolution: SchemaEvolutionSettings | None = None
    checkpoint: CheckpointSettings = CheckpointSettings()
    freshness: PipelineFreshnessSettings = PipelineFreshnessSettings()
    bootstrap: BootstrapSettings = BootstrapSettings()
    errors: ErrorSettings = ErrorSettings()
    moved_rows: MovedRowsSettings = MovedRowsSettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    write: WriteBufferSettings = WriteBufferSettings()
    metrics: MetricsSettings = MetricsSettings()
    lineage: LineageSettings | None = None
    request_prices: RequestPricesSettings = RequestPricesSettings()

    @property
    def has_quarantine(self) -> bool:
        """Whether tables that fail are quarantined. A pipeline with a single table can't continue without it, and one
        that masks columns must not keep records on disk.
        """
        masks = any(table.masks for table in self.tables)
        return self.quarantine.enabled and not masks and (len(self.tables) > 1 or bool(self.templates))

    @property
    def named_tables(self) -> list[TableSettings]:
        """Entries that stand for one table."""
        return [table for table in self.tables if not table.is_template]

    @property
    def templates(self) -> list[TableSettings]:
        """Entries that stand for many tables."""
        return [table for table in self.tables if table.is_template]

    def schema_evolution_of(self, table: TableSettings) -> SchemaEvolutionSettings:
        """Return the table's own settings, or else the pipeline's, or else the default."""
        return table.schema_evolution or self.schema_evolution or SchemaEvolutionSettings()

    def bootstrap_of(self, table: TableSettings) -> BootstrapSettings:
        """Return the table's own settings, or else the pipeline's."""
        return table.bootstrap or self.bootstrap

    def freshness_target_of(self, table: TableSettings) -> int | None:
        """Return the table's own target in ms, or else the pipeline's. A paused table has none."""
        if table.paused:
            return None
        return self.freshness.target_ms if table.freshness is None else table.freshness.target_ms

    @property
    def ruling_target(self) -> tuple[str, int] | None:
        """The entry with the smallest target of freshness, and the target in ms; None if no table has one."""
        targets = [(target, table.name) for table in self.tables if (target := self.freshness_target_of(table))]
        return None if not targets else min(targets)[::-1]

    @property
    def first_interval_ms(self) -> int:
        """The interval of checkpoints at the start of a run. A target of freshness changes it later."""
        ruling = self.ruling_target
        return self.checkpoint.interval_ms if ruling is None else ruling[1] * 3 // 4

    @property
    def dead_letters_table(self) -> str | None:
        """The table for tolerated records that can't be decoded. None: they are written to `dead_letters`."""
        given = self.errors.dead_letters
        return given.table if isinstance(given, DeadLetterTableSettings) else None

    @property
    def quarantine_location(self) -> str:
        """The folder for the waiting records of tables that failed."""
        return self.quarantine.location or f"{self.warehouse.rstrip('/')}/{self.pipeline}.quarantine"

    @property
    def dead_letters(self) -> str:
        """The folder for tolerated records that can't be decoded."""
        given = self.errors.dead_letters
        return given if isinstance(given, str) else f"{self.warehouse.rstrip('/')}/{self.pipeline}.dead-letters"
