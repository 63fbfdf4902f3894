"""Runs a pipeline's configuration as one Spark query: the source is read once, for all tables."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyspark
from msgspec import structs
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.utils import is_remote

from tidelake.checkpoint.offsets import TopicPartition
from tidelake.errors import BadInput, PositionRefused, TidelakeError, UnsupportedFeature
from tidelake.ingest.formats.registry import open_format
from tidelake.ingest.pipeline.builder import configuration_differences, expanded, opened_tables
from tidelake.ingest.pipeline.configured_tables import ConfiguredTables
from tidelake.ingest.settings import Config
from tidelake.ingest.source_settings import FolderSettings, KafkaSettings, StartSettings
from tidelake.ingest.spark.batch_truncates import TruncateSource
from tidelake.ingest.spark.dead_letter_budget import DeadLetterBudget
from tidelake.ingest.spark.query_monitor import QueryMonitor
from tidelake.ingest.spark.query_runs import query_id
from tidelake.ingest.spark.release import HAS_DATA_SOURCES, RELEASE, check_session
from tidelake.ingest.spark.sink import write_batch
from tidelake.ingest.spark.task_errors import environment_error, raised_in_task
from tidelake.ingest.tables.table_differences import check_differences
from tidelake.spark.changelog_folder.folder_options import FORMAT as FOLDER_FORMAT
from tidelake.spark.kafka.connector_offsets import from_members, to_members
from tidelake.spark.kafka.kafka_options import (
    CONTINUING_OFFSETS,
    MAX_RECORD_BYTES,
    STARTING_GROUP,
    UNREACHABLE_AFTER_MS,
    options_of,
)
from tidelake.spark.kafka.kafka_options import FORMAT as KAFKA_FORMAT
from tidelake.spark.planned_source import PlannedSource, files_of
from tidelake.spark.query_tables import ConfiguredQueryTables
from tidelake.spark.read_limits import HAS_LIMITS
from tidelake.spark.registration import register
from tidelake.spark.schema_following import SchemaFollowing, has_ordered_changes
from tidelake.spark.start_positions import StartPositions
from tidelake.storage.base.logs import get_logger

_MAX_FILES_PER_BATCH: Final = 8  # so that a long backlog is committed in small steps
_KAFKA_COLUMNS: Final = (  # the columns that the sink reads
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int"
)
_SHARED: Final = frozenset({"kafka.bootstrap.servers", "kafka.isolation.level"})  # mean the same to both clients
_RUN_REMEDY: Final = "Run it with `tidelake ingest run`, or write a Spark job that uses tidelake.spark.sink"

_log = get_logger(__name__)


@dataclass(frozen=True)
class PipelineQuery:
    """The query of a pipeline. It ends by itself if the source has `until: end`."""

    query: StreamingQuery
    failures: list[TidelakeError]
    monitor: QueryMonitor
    _serving: ExitStack

    def has_ended(self) -> bool:
        """Return whether the query has ended. Raises the error that made it fail, as the sink raised it."""
        if self.query.isActive:
            return False
        self._serving.close()
        error = self.query.exception()
        if error is None:
            return True
        raise self.failures[0] if self.failures else unwrap_spark_error(error)

    def stop(self) -> None:
        """Stop the query. An interrupted batch is repeated at the next start, and counts once."""
        self._serving.close()
        self.query.stop()


def start_query(spark: SparkSession, config: Config, checkpoint: str) -> PipelineQuery:
    """Start a pipeline's query. Tables that don't exist are created after their first record.

    With a new checkpoint directory, it begins at the position of the tables, and where they have none at the
    configured start. A directory of an earlier start has its own position.

    Raises UnsupportedFeature for unsupported settings that would change the rows. A warning names settings without
    effect.
    """
    if is_remote():
        raise UnsupportedFeature(
            "a pipeline on Spark Connect",
            "its driver runs in the server, which has no access to the tables and errors of this process",
            "Run it with --master or `tidelake spark submit`, or write a job that uses tidelake.spark.sink",
        )
    check_session(spark)
    check_settings(config)
    found = expanded(config)
    config = found.config
    check_differences(configuration_differences(config, opened_tables(config)))
    positions = StartPositions.of(config)
    begins = {} if has_started(spark, checkpoint) else positions.begins()
    if begins:
        _log.info("begins at the position of the tables", offsets=to_members(begins))
    monitor = QueryMonitor(config.metrics, config.pipeline, config.warehouse, config.checkpoint.interval_ms)
    configured = ConfiguredTables.of(config)
    tables = ConfiguredQueryTables(config, configured, positions, begins, found.contexts)
    tolerance = config.errors.tolerance
    budget = DeadLetterBudget(tolerance) if isinstance(tolerance, int) else None
    source = PlannedSource(config, checkpoint)
    feed = _ForeachBatch(tables, SchemaFollowing(config, configured), monitor, source, checkpoint, budget)
    writer: DataStreamWriter = read_source(spark, config, begins).writeStream.queryName(config.pipeline)
    writer = writer.foreachBatch(feed).option("checkpointLocation", checkpoint)
    if config.source.until == "end":
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{config.checkpoint.interval_ms} milliseconds")
    with ExitStack() as serving:
        ends = _SourceEnds(isinstance(config.source, KafkaSettings))
        serving.enter_context(monitor.serving(ends))
        ends.query = writer.start()
        return PipelineQuery(ends.query, feed.failures, monitor, serving.pop_all())


def unwrap_spark_error(error: StreamingQueryException) -> Exception:
    """Return the error that a task raised on purpose, which arrives as text within text.

    Other errors are returned unchanged.
    """
    text = str(error)
    return environment_error(text) or raised_in_task(text) or error


@dataclass(frozen=True)
class _ForeachBatch:
    """The function for `foreachBatch`: writes a batch to all tables.

    A table that doesn't exist is created with its first record. If a crash leaves a batch in only some of the tables,
    the batch is repeated, and these tables skip it.
    """

    tables: ConfiguredQueryTables
    schemas: SchemaFollowing
    monitor: QueryMonitor
    source: PlannedSource
    checkpoint: str
    budget: DeadLetterBudget | None = None
    failures: list[TidelakeError] = field(default_factory=list)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        with self.monitor.batch(batch_id):
            self._write(batch, batch_id)

    def _write(self, batch: DataFrame, batch_id: int) -> None:
        try:
            self.tables.begin(query_id(batch))
            sinks = [self.schemas.with_decisions(one) for one in self.tables.sinks(batch_id)]
            known = partial(self.source.partitions, batch.sparkSession, batch_id)
            truncates = TruncateSource(known, self.source.open)
            write_batch(sinks, batch, batch_id, self.schemas, self.monitor, self.budget, truncates, self.tables)
        except PositionRefused as error:
            refused = self._with_one_remedy(error)
            self.failures.append(refused)
            raise refused from None
        except TidelakeError as error:
            self.failures.append(error)
            raise

    def _with_one_remedy(self, error: PositionRefused) -> PositionRefused:
        """Return the error with the remedy that a pipeline has: Spark's log in the directory can't be corrected."""
        return PositionRefused(
            f"{error.found}. Spark's checkpoint directory {self.checkpoint} says where the query reads, and it does "
            "not fit the tables: another driver has written to them, or it is not the directory of the last run",
            [
                f"start with a new checkpoint directory, such as `--checkpoint {self.checkpoint.rstrip('/')}-2`: the "
                "query then begins at the position of the tables by itself"
            ],
        )


@dataclass
class _SourceEnds:
    """The end offsets of Kafka's partitions, from Spark's last progress.

    PySpark 4.1 doesn't report them, and a folder has no known end.
    """

    is_reported: bool
    query: StreamingQuery | None = None

    def __call__(self) -> Mapping[TopicPartition, int]:
        progress = self.query.lastProgress if self.is_reported and self.query is not None else None
        sources = [] if progress is None else progress.sources
        latest = [json.loads(source.latestOffset or "null") for source in sources]
        return {partition: end for ends in latest if ends for partition, end in from_members(ends).items()}


# ---------------------------------------------------------------- sources


def has_started(spark: SparkSession, checkpoint: str) -> bool:
    """Return whether a query has planned a batch with this checkpoint directory."""
    files, log = files_of(spark, f"{checkpoint.rstrip('/')}/offsets")
    try:
        return bool(len(files.listStatus(log)))
    except Exception as error:
        if "java.io.FileNotFoundException" in str(error):
            return False
        raise


def read_source(spark: SparkSession, config: Config, begins: Mapping[TopicPartition, int] | None = None) -> DataFrame:
    """Return the records of the configured source as a streaming DataFrame.

    begins: where a new query begins to read partitions, whatever the configured start is.
    """
    source = config.source
    if isinstance(source, FolderSettings):
        if not source.path.is_dir():
            raise BadInput(f"{source.path} is not a folder. Set `source.path` to the folder with the change logs")
        if not HAS_DATA_SOURCES:
            return _lines(spark, source, begins or {})
        register(spark)
        limits = {"maxFilesPerTrigger": str(_MAX_FILES_PER_BATCH)} if HAS_LIMITS else {}
        headers = ",".join(sorted(open_format(config.format, config.format_options).KEPT_HEADERS))
        at = {} if source.start == "earliest" else source.start.offsets
        at = merged_offsets(at, begins or {})
        starts = {"startingOffsets": _offsets_text(at)} if at else {}
        folder = spark.readStream.format(FOLDER_FORMAT).options(**limits, **starts, headers=headers)
        return folder.load(str(source.path.absolute()))
    kept = sorted(open_format(config.format, config.format_options).KEPT_HEADERS)
    if not HAS_DATA_SOURCES:
        return _records_of_connector(spark, source, begins or {}, has_headers=bool(kept))
    register(spark)
    schema = _KAFKA_COLUMNS + (", headers array<struct<key string, value binary>>" if kept else "")
    named = {"headers": ",".join(kept)} if kept else {}
    reader = spark.readStream.format(KAFKA_FORMAT).schema(schema)
    continued = {CONTINUING_OFFSETS: json.dumps(to_members(begins))} if begins else {}
    return reader.options(**kafka_options(source), **named, **continued).load()


def _lines(spark: SparkSession, source: FolderSettings, begins: Mapping[TopicPartition, int]) -> DataFrame:
    """Return the lines of the folder's files, read by Spark's text source."""
    if begins or source.start != "earliest":
        raise UnsupportedFeature(
            f"a folder that is not read from its beginning, with PySpark {pyspark.__version__}",
            "Spark's text source reads whole files, and the data source that can skip records needs PySpark 4.1",
            "Continue with the checkpoint directory of the query that read the folder, or with `tidelake ingest run`",
        )
    if compressed := sorted(source.path.glob("*.jsonl.zst")):
        raise UnsupportedFeature(
            f"{compressed[0]} with PySpark {pyspark.__version__}",
            "Spark's text source doesn't read Zstandard",
            "Compress the files with gzip, or use PySpark 4.1 or newer",
        )
    lines = spark.readStream.option("maxFilesPerTrigger", _MAX_FILES_PER_BATCH).option("lineSep", "\n")
    return lines.option("pathGlobFilter", "*.jsonl*").text(str(source.path.absolute()))


def _records_of_connector(
    spark: SparkSession, source: KafkaSettings, begins: Mapping[TopicPartition, int], *, has_headers: bool
) -> DataFrame:
    """Return the records of topics, read by Spark's own connector."""
    given = kafka_options(source)
    own = sorted(key for key in given if key == STARTING_GROUP or (key.startswith("kafka.") and key not in _SHARED))
    if own:
        raise UnsupportedFeature(
            f"{', '.join(own)} with PySpark {pyspark.__version__}",
            "Spark's own connector reads Kafka there, and has other names for logins, certificates and groups",
            "Use PySpark 4.1 or newer, or write a Spark job that reads with the connector and uses tidelake.spark.sink",
        )
    options = {key: text for key, text in given.items() if key not in (MAX_RECORD_BYTES, UNREACHABLE_AFTER_MS)}
    if begins:
        options = {key: text for key, text in options.items() if not key.startswith("starting")}
        options["startingOffsets"] = json.dumps(to_members(begins))
    reader = spark.readStream.format("kafka").options(**options, includeHeaders=str(has_headers).lower())
    try:
        return reader.load()
    except AnalysisException as error:
        if "kafka" not in str(error):
            raise
        scala = "2.12" if RELEASE < (4, 0) else "2.13"
        package = f"org.apache.spark:spark-sql-kafka-0-10_{scala}:{pyspark.__version__}"
        raise UnsupportedFeature(
            f"a Kafka source with PySpark {pyspark.__version__}",
            "tidelake's own data source needs PySpark 4.1 or newer, and Spark's connector is not in this session",
            f"Add the connector: --conf spark.jars.packages={package}",
        ) from None


def kafka_options(source: KafkaSettings) -> dict[str, str]:
    """Return the connector's options for these settings."""
    options = options_of(source)
    if not isinstance(source.start, StartSettings):
        options["startingOffsets"] = source.start
    elif source.start.timestamp_ms is not None:
        options["startingTimestamp"] = str(source.start.timestamp_ms)
        options["startingOffsetsByTimestampStrategy"] = "latest"
    elif source.start.group is not None:
        options["startingGroup"] = source.start.group
    elif source.start.offsets is not None:
        options["startingOffsets"] = _offsets_text(source.start.offsets)
    return options


def merged_offsets(
    topics: Mapping[str, Mapping[int, int]], begins: Mapping[TopicPartition, int]
) -> dict[str, dict[int, int]]:
    found = {topic: dict(of_topic) for topic, of_topic in topics.items()}
    for partition, offset in begins.items():
        found.setdefault(partition.topic, {})[partition.partition] = offset
    return found


def _offsets_text(topics: Mapping[str, Mapping[int, int]]) -> str:
    return json.dumps({topic: {str(partition): at for partition, at in of.items()} for topic, of in topics.items()})


# ---------------------------------------------------------------- unsupported settings


_EFFECTIVE_OPTIONS: Final[Mapping[str, frozenset[str]]] = {  # have an effect, or are refused with unsupported values
    "source": frozenset(
        {"path"} | {setting.name for setting in structs.fields(KafkaSettings)} - {"group_id", "until_timestamp_ms"}
    ),
    "checkpoint": frozenset({"interval_ms"}),
    "errors": frozenset({"tolerance", "dead_letters"}),
    "write": frozenset(),
}


def check_settings(config: Config) -> None:
    """Refuse settings that would change which rows arrive, and warn about those that only change the speed."""
    refused: list[tuple[bool, str, str]] = []
    unordered = "a column is renamed or dropped between two records, and the tasks of a Spark batch have no order"
    refused.append((has_ordered_changes(config), "schema_evolution: rename.column, drop.column", unordered))
    has_target = config.ruling_target is not None
    refused.append((has_target, "freshness", "the trigger of a Spark query has one interval, checkpoint.interval_ms"))
    bootstraps = any(config.bootstrap_of(table).enabled for table in config.tables)
    refused.append((bootstraps, "bootstrap", "each batch of a Spark query commits its own rows"))
    versions = any(table.mode == "scd2" for table in config.tables)
    refused.append((versions, "mode: scd2", "Spark's tasks write a change without the version that it ends"))
    refused.append((any(t.paused for t in config.tables), "paused", "a Spark query has no quarantine"))
    refused.append(
        (
            config.lineage is not None,
            "lineage",
            "Spark has its own OpenLineage listener (io.openlineage:openlineage-spark)",
        )
    )
    source = config.source
    if isinstance(source, KafkaSettings):
        stops_early = source.until_timestamp_ms is not None
        refused.append(
            (stops_early, "source.until_timestamp_ms", "a Spark query ends where the partitions ended when it started")
        )
    for is_given, setting, reason in refused:
        if is_given:
            raise UnsupportedFeature(setting, reason, _RUN_REMEDY)
    if idle := _without_effect(config):
        _log.warning("without effect on Spark", settings=idle)


def _without_effect(config: Config) -> list[str]:
    """Return the names of settings that differ from their defaults and have no effect on Spark."""
    decoding = ["source.decode_processes"] if config.source.decode_processes else []  # Spark's tasks decode
    return decoding + [
        f"{section}.{setting.name}"
        for section, effective in _EFFECTIVE_OPTIONS.items()
        for settings in [getattr(config, section)]
        for setting in structs.fields(settings)
        if setting.name not in effective and getattr(settings, setting.name) != setting.default
    ]
