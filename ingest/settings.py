"""Everything an ingest configuration may say, with its defaults.

Names, types and defaults only: `config` reads them from files, the environment and flags. Sizes are in bytes, times in
milliseconds, as their names say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from ingest.hidden_values import RedactedOptions, Secret

Positive = Annotated[int, msgspec.Meta(ge=1)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]
KafkaInt = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]  # travels to brokers in four bytes
KafkaLong = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Name = Annotated[str, msgspec.Meta(min_length=1)]
TABLE_NAME_PATTERN: Final = r"^[^.]+\.[^.]+$"
PLACEHOLDER: Final = re.compile(r"\{(\w*)\}")  # in the name of an entry that stands for many tables


class FolderStartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """offsets: topic to partition to next offset; partitions that aren't named begin with their first record."""

    offsets: Mapping[str, Mapping[NotNegative, KafkaLong]]


class FolderSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="change-log-folder"
):
    """Change-log files in a folder.

    path: the folder. start: where a pipeline begins that has not committed yet; afterwards its tables know. until:
    `end` reads what is there, `forever` waits for more. poll_interval_ms: how long to wait,
    when all has been read, before looking for new files and lines. max_record_bytes: how long a line may be,
    uncompressed; a longer one stops the pipeline before it fills the memory.
    """

    path: Path
    start: Literal["earliest"] | FolderStartSettings = "earliest"
    until: Literal["end", "forever"] = "forever"
    poll_interval_ms: Positive = 1_000
    max_record_bytes: Positive = 64 << 20


class StartSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one of these.

    timestamp_ms: epoch milliseconds; each partition begins with its first record that is not older. offsets: topic to
    partition to next offset, for all partitions. group: a consumer group; reading begins at its committed offsets.
    """

    timestamp_ms: KafkaLong | None = None
    offsets: Mapping[str, Mapping[NotNegative, KafkaLong]] | None = None
    group: Name | None = None


class KafkaSettings(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="kafka"
):
    """Topics of a Kafka cluster. From `client_id` on, settings go to the Kafka client as they are.

    bootstrap_servers: `host:port` of a broker or of several, which know the others. topics: what is read, by name.
    topic_pattern: instead of names a regular expression that they match whole; topics that come up later are read, too.
    start: where a pipeline begins that has not committed yet; afterwards its tables know. until: `end` stops at the
    ends that the partitions had when reading began, `forever` waits for more. until_timestamp_ms: each
    partition is read up to the first record whose time is this one or later (epoch milliseconds), and no further than
    its end; reading stops there. isolation_level: `read_committed` passes
    over records of transactions that were aborted. group_id: where confirmed offsets are written to, for monitoring;
    they are never read back. discovery_interval_ms: how often new topics and partitions are looked for.
    unreachable_after_ms: how long a partition may give no answer before the pipeline stops with an error. Until then
    brokers are tried again after 200 ms to 10 s, and the log says so once a minute.
    max_record_bytes: what a compressed record, or the batch that it was compressed in, may be uncompressed; a larger
    one stops the pipeline before it fills the memory. What isn't compressed is bounded by the fetch sizes below.

    client_id: what brokers call the client in their logs and quotas. client_rack: where the client stands; a replica of
    the same rack is read. request_timeout_ms: how long a broker may take to answer. connections_max_idle_ms: when an
    idle connection is closed. fetch_min_bytes: how much a broker collects before it answers. fetch_max_bytes: how large
    an answer may be. fetch_max_wait_ms: how long a broker waits for `fetch_min_bytes`. max_partition_fetch_bytes: how
    much of an answer may be of one partition. check_crcs: whether checksums are compared.
    security_protocol: how brokers are talked to. sasl_mechanism: how the client proves who it is, where the protocol is
    one of SASL. sasl_plain_username, sasl_plain_password: for `PLAIN` and `SCRAM-…`. sasl_kerberos_service_name,
    sasl_kerberos_domain_name: for `GSSAPI`. ssl_cafile: PEM file of the authorities that are trusted; left out: the
    system's. ssl_certfile: PEM file of the client's own certificate. ssl_keyfile: PEM file of that certificate's key.
    ssl_password: what opens `ssl_keyfile`. ssl_check_hostname: whether a broker's certificate must name its host.
    """

    bootstrap_servers: Name | list[Name]
    topics: Name | list[Name] = []
    topic_pattern: Name | None = None
    start: Literal["earliest", "latest"] | StartSettings = "earliest"
    until: Literal["end", "forever"] = "forever"
    until_timestamp_ms: KafkaLong | None = None
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    group_id: Name | None = None
    discovery_interval_ms: Positive = 30_000
    unreachable_after_ms: Positive = 120_000
    max_record_bytes: Positive = 64 << 20

    client_id: Name = "tidelake"
    client_rack: Name | None = None
    request_timeout_ms: Positive = 40_000
    connections_max_idle_ms: Positive = 540_000
    fetch_min_bytes: KafkaInt = 1
    fetch_max_bytes: KafkaInt = 52_428_800
    fetch_max_wait_ms: KafkaInt = 500
    max_partition_fetch_bytes: KafkaInt = 1_048_576
    check_crcs: bool = True
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "GSSAPI", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    sasl_plain_username: str | None = None
    sasl_plain_password: Secret | None = None
    sasl_kerberos_service_name: str = "kafka"
    sasl_kerberos_domain_name: str | None = None
    ssl_cafile: Path | None = None
    ssl_certfile: Path | None = None
    ssl_keyfile: Path | None = None
    ssl_password: Secret | None = None
    ssl_check_hostname: bool = True

    @property
    def topic_names(self) -> list[str]:
        return [self.topics] if isinstance(self.topics, str) else self.topics

    @property
    def server_text(self) -> str:
        return self.bootstrap_servers if isinstance(self.bootstrap_servers, str) else ",".join(self.bootstrap_servers)


SchemaChangeName = Literal[
    "add", "add.column", "alter", "alter.column.type", "rename", "rename.column", "drop", "drop.column", "column"
]


class SchemaEvolutionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of a table when the source's columns change.

    mode: as Flink CDC's `schema.change.behavior`. `exception` stops at the first change. `evolve` makes the change, and
    stops where it can't be made. `try_evolve` makes it where it can be made, and else goes on as `ignore`. `lenient` is
    `evolve`, but no column is dropped or renamed: a new one is added beside it. `ignore` leaves the table as it is:
    columns that it lacks are passed over, and values that don't fit count as records that can't be decoded.
    include: changes that are made: `add.column`, `alter.column.type` (to a wider one), `rename.column`, `drop.column`;
    or all that a word of theirs names (`drop`). Others are ignored. exclude: changes that are ignored all the same.
    """

    mode: Literal["exception", "evolve", "try_evolve", "lenient", "ignore"] = "evolve"
    include: tuple[SchemaChangeName, ...] = ("add.column", "alter.column.type")
    exclude: tuple[SchemaChangeName, ...] = ()


class SourceTablesSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which source tables an entry of many tables takes, and what they are called. Regular expressions must match a
    name whole; names of tables are those that records give, without database and schema.

    including_tables: of names of tables that are taken; left out: all. excluding_tables: of those that are not, though
    included. including_dbs, excluding_dbs: the same for names of databases. mapping: name of a source table, whatever
    its case, to the table part of the name it gets; others are named by the entry's `name`. prefix_of_db, suffix_of_db:
    name of a source database, whatever its case, to what stands before and behind `{table}` instead of what `name` has
    there. merge_shards: whether tables of one name in several databases become one; `false` makes `{table}` stand for
    `database_table`. partition_by: name of a source table to its partition columns; others have those of the entry.
    lower_case: whether what placeholders stand for becomes lower case; always so where the catalog takes no others.
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


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One table of the pipeline, or many.

    name: `database.table`. With `{table}`, `{schema}`, `{database}` or `{topic}` in its table part it stands for as
    many tables as records name; each is made from the first record that names it. match: shell patterns over the
    names of source tables (`shop.public.orders`, `public.orders`, `orders`) and of topics; one of them must fit.
    Left out: the table part of `name`; of an entry of many tables, all. topics: shell patterns; only topics that
    fit one feed the table. Left out: all. With many topics it keeps positions short. primary_key: of the table that
    is created if there is none; left out: the key of its records. key_from_records: `false` has the table created
    without a key where `primary_key` names none, whatever key its records have. partition_by: partition columns of the
    table that is created if there is none. options: table options of the table that is created if there is none. A
    table that exists stays as it is: where `primary_key`, `partition_by` and `options` contradict it, `plan` says so,
    and `run` refuses what would make other rows, another changelog or another layout. shared_with: commit users (other
    pipelines, Spark queries) that read the same topics into the table, each records that this pipeline doesn't take;
    left out, it is refused to start where others have read what it is about to. source_types: column to what its values
    mean at the source, where records can't say (`bigint unsigned`). rounded_columns: columns whose values may lose
    digits that the column's type lacks; others stop the pipeline. columns: column to SQL type, for columns that are
    made: in a table that is created, or added later (`amount: DECIMAL(18, 2)`). type_mapping: for other columns that
    are made, words of Paimon's `type_mapping`; see [columns](schema-evolution.md). computed_columns: column to a call
    of one of Paimon's functions (`dt: date_format(created, yyyy-MM-dd)`). metadata_columns: columns that say where a
    row came from (`topic`, `offset`, `op_ts`, …). metadata_column_prefix: of their names. schema_evolution: what
    becomes of the table when the source's columns change; left out: as the pipeline's. source_tables: of an entry of
    many tables, which source tables it takes, and their names.
    """

    name: Annotated[str, msgspec.Meta(pattern=TABLE_NAME_PATTERN)]
    match: Name | Annotated[list[Name], msgspec.Meta(min_length=1)] | None = None
    topics: Name | list[Name] = []
    primary_key: list[Name] = []
    key_from_records: bool = True
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
    schema_evolution: SchemaEvolutionSettings | None = None
    source_tables: SourceTablesSettings | None = None

    @property
    def is_template(self) -> bool:
        """Whether this stands for many tables."""
        return PLACEHOLDER.search(self.name) is not None

    def key_of_new(self, key_of_records: Sequence[str]) -> Sequence[str]:
        """The primary key of the table, if it is created."""
        return self.primary_key or (key_of_records if self.key_from_records else ())

    @property
    def option_texts(self) -> dict[str, str]:
        """As a table stores them: text; booleans as YAML and Java write them."""
        return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in self.options.items()}

    @property
    def match_patterns(self) -> list[str]:
        if self.match is None:
            return ["*"] if self.is_template else [self.name.partition(".")[2]]
        return [self.match] if isinstance(self.match, str) else self.match

    @property
    def other_users(self) -> frozenset[str]:
        """Commit users whose positions say nothing of this pipeline's records."""
        return frozenset([self.shared_with] if isinstance(self.shared_with, str) else self.shared_with)

    @property
    def topic_patterns(self) -> list[str]:
        return ([self.topics] if isinstance(self.topics, str) else self.topics) or ["*"]


class CheckpointSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When written rows are committed: at whichever of these comes first.

    interval_ms: from the begin of one checkpoint to the begin of the next, and after a pause from the first record.
    bytes_max: after how many bytes of records.
    whole_transactions: whether no checkpoint comes between records of one partition that are of one transaction of the
    source; debezium-json with the connector's `provide.transaction.metadata` says which are. transaction_ms_max,
    transaction_bytes_max: how long, and of all partitions how much, waits for the rest of transactions; what waited in
    vain may be committed in parts, which the log and the metrics tell.
    """

    interval_ms: Positive = 10_000
    bytes_max: Positive = 512 << 20
    whole_transactions: bool = False
    transaction_ms_max: Positive = 5_000
    transaction_bytes_max: Positive = 64 << 20


class DeadLetterTableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Dead letters as rows of an append table of the warehouse, made when there is none.

    table: `database.table`.
    """

    table: Annotated[str, msgspec.Meta(pattern=TABLE_NAME_PATTERN)]


class ErrorSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What becomes of records that can't be decoded.

    tolerance: `none` stops at the first, a number when one run meets more than that many (those that a run before
    has set aside count no more, so the next start goes further), `all` never. Truncates that can't be carried out
    stop the pipeline in any case, and `schema_evolution` says what becomes of columns that a table lacks, and of
    values that only a wider column would hold. dead_letters: where tolerated records are kept: a folder, or
    `{table: database.table}`; left out: the folder `<pipeline>.dead-letters` in the warehouse.
    log_include_messages: whether the log has the reason of a dead letter, which may quote the record.
    waiting_ms_max: how long a partition may wait for a value that a record of another partition has; then its
    record counts as one that can't be decoded. waiting_bytes_max: how much may be held back while partitions wait;
    beyond it their records count as such, too.
    """

    tolerance: Literal["none", "all"] | NotNegative = "none"
    dead_letters: Name | DeadLetterTableSettings | None = None
    log_include_messages: bool = False
    waiting_ms_max: Positive = 60_000
    waiting_bytes_max: Positive = 64 << 20


class QuarantineSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tables that fail while others are well: the others go on, and the records of the one that failed wait on disk.

    enabled: `false` stops the pipeline instead. location: where the records wait; left out: `<pipeline>.quarantine` in
    the warehouse. bytes_max: how much may wait for all tables; beyond it the pipeline stops. table_bytes_max: how much
    for one. retry_ms_min: when a table that failed is tried again first; each further time after twice as long.
    retry_ms_max: the longest time between two tries.
    """

    enabled: bool = True
    location: Name | None = None
    bytes_max: Positive = 8 << 30
    table_bytes_max: Positive = 2 << 30
    retry_ms_min: Positive = 1_000
    retry_ms_max: Positive = 300_000


class MovedRowsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rows whose primary key changed at the source, between the record that deletes them under the old key and the one
    that brings them under the new: that one may lack values that did not change.

    keep_ms: how long such a row is kept; of one that comes later the record counts as one that can't be decoded, if it
    lacks values. bytes_max: how much is kept of all tables; beyond it the oldest are dropped.
    """

    keep_ms: Positive = 86_400_000
    bytes_max: Positive = 64 << 20


class WriteBufferSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory and disk for rows on their way into files.

    memory_bytes: all write buffers of all tables. queue_bytes: between reading, decoding and writing, each.
    spill_directory: where rows go that outgrow the memory; left out: the system's directory for temporary files.
    """

    memory_bytes: Positive = 256 << 20
    queue_bytes: Positive = 16 << 20
    spill_directory: Path | None = None


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The HTTP endpoint of a running pipeline: `/metrics` for Prometheus, `/live` and `/ready` for probes, `/status` as
    JSON, and a status page at `/`. It has no authentication. See [operations](operations.md).

    port: where it listens; left out: there is no endpoint. 0 takes a free one, which the log names. host: the address;
    `0.0.0.0` lets other machines ask. tables_max: how many tables have metrics of their own; the others are one,
    `_other`. partitions_max: the same for partitions of topics.
    """

    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] | None = None
    host: Name = "127.0.0.1"
    tables_max: Positive = 500
    partitions_max: Positive = 2_000


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One pipeline.

    pipeline: its name, and the commit user of its snapshots. The tables know their position by it: keep it for life.
    warehouse: the directory of all tables, or its address in an object store (`s3://bucket/lake`).
    warehouse_options: for the catalog and the object store, as `tidelake.open_catalog` takes them.
    source: what is read.
    format: what its records are, never guessed: `debezium-json`, `debezium-avro`, `debezium-bson`, `canal-json`,
        `maxwell-json`, `ogg-json`, `aliyun-json`, `aws-dms-json`, `json`, `avro` or `csv`; see [formats](formats.md).
    format_options: what the format takes.
    tables: what is written.
    schema_evolution: what becomes of the tables when the source's columns change; left out: columns are added and
        widened (`mode: evolve`).
    checkpoint: when what was written is committed.
    errors: what becomes of records that can't be decoded.
    moved_rows: what is kept of rows whose primary key changes.
    quarantine: what becomes of tables that fail while others are well.
    write: memory and disk for rows on their way into files.
    metrics: the HTTP endpoint with metrics, health and status of the pipeline.
    """

    pipeline: Name
    warehouse: Name
    warehouse_options: RedactedOptions = msgspec.field(default_factory=RedactedOptions)
    source: FolderSettings | KafkaSettings
    format: Name = "debezium-json"
    format_options: Mapping[str, Any] = {}
    tables: Annotated[list[TableSettings], msgspec.Meta(min_length=1)]
    schema_evolution: SchemaEvolutionSettings | None = None
    checkpoint: CheckpointSettings = CheckpointSettings()
    errors: ErrorSettings = ErrorSettings()
    moved_rows: MovedRowsSettings = MovedRowsSettings()
    quarantine: QuarantineSettings = QuarantineSettings()
    write: WriteBufferSettings = WriteBufferSettings()
    metrics: MetricsSettings = MetricsSettings()

    @property
    def named_tables(self) -> list[TableSettings]:
        """Without entries that stand for many."""
        return [table for table in self.tables if not table.is_template]

    @property
    def templates(self) -> list[TableSettings]:
        """Entries that stand for many tables."""
        return [table for table in self.tables if table.is_template]

    def schema_evolution_of(self, table: TableSettings) -> SchemaEvolutionSettings:
        """The table's own, else the pipeline's, else the default."""
        return table.schema_evolution or self.schema_evolution or SchemaEvolutionSettings()

    @property
    def dead_letters_table(self) -> str | None:
        """The table where records go that can't be decoded and are tolerated; None: they go to `dead_letters`."""
        given = self.errors.dead_letters
        return given.table if isinstance(given, DeadLetterTableSettings) else None

    @property
    def quarantine_location(self) -> str:
        """Where the records of tables that failed wait."""
        return self.quarantine.location or f"{self.warehouse.rstrip('/')}/{self.pipeline}.quarantine"

    @property
    def dead_letters(self) -> str:
        """The folder where records go that can't be decoded and are tolerated."""
        given = self.errors.dead_letters
        return given if isinstance(given, str) else f"{self.warehouse.rstrip('/')}/{self.pipeline}.dead-letters"
