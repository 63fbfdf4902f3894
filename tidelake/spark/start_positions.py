"""Where a pipeline's new query begins: at the position of its tables, whoever read the records before.

`tidelake ingest run` and queries with other checkpoint directories leave their positions in the tables' snapshots, and
`ingest run` also in its progress file, for tables without rows in the newest records. A query reads each partition once
for all of its tables. So they must have read it equally far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidelake.checkpoint.fence import summarize
from tidelake.checkpoint.idle_progress import IdleProgress, ProgressEntry
from tidelake.checkpoint.offsets import POSITION_PROPERTY, TopicPartition
from tidelake.checkpoint.other_users import table_position
from tidelake.checkpoint.position_problems import first_few
from tidelake.checkpoint.recovery import recover_table
from tidelake.checkpoint.routing import Routing, takes_topic
from tidelake.checkpoint.table_state import MISSING_TABLE
from tidelake.errors import PositionRefused
from tidelake.ingest.pipeline.progress_tracker import ProgressFile, progress_path
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.tables.table_history import CommitHistory
from tidelake.spark.query_progress import QueryProgressFile
from tidelake.storage.base.logs import get_logger
from tidelake.storage.base.threads import map_parallel
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.commit.table_commit import TableCommit
from tidelake.storage.fileio import open_file_io
from tidelake.storage.model.table import TableContext

_log = get_logger(__name__)


@dataclass(frozen=True)
class StartPositions:
    """How far the tables of a pipeline have been read, before a query starts.

    reached: for each existing table, its next offset in each partition.
    topics: for each existing table, the patterns of its topics.
    states: for each existing table, its newest snapshot with a position, as in the progress file of a query.
    """

    reached: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    topics: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    states: Mapping[str, ProgressEntry] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> StartPositions:
        """Read the positions from the tables, and from the progress files of `tidelake ingest run` and of queries."""
        options = {key: str(value) for key, value in config.warehouse_options.items()}
        io = open_file_io(config.warehouse, options)
        progress = ProgressFile(io, progress_path(config.warehouse, config.pipeline)).read()
        of_query = QueryProgressFile(io, config.warehouse, config.pipeline).read()
        catalog = open_catalog(config.warehouse, options)

        def of(table: TableSettings) -> tuple[ProgressEntry | None, dict[TopicPartition, int]]:
            context = catalog.load(table.name) if catalog.table_exists(table.name) else None
            routing = Routing.of(config.format, table.match_patterns, table.topic_patterns)
            ends = _reached(table, context, config.pipeline, progress, routing)
            if context is None:
                return None, ends
            state = _state(table, context, routing)
            idle = of_query.reached_for(table.name, state)
            further = {p: end for p, end in idle.items() if end > ends.get(p, -1)}
            return state, ends | {p: end for p, end in further.items() if takes_topic(table.topic_patterns, p.topic)}

        reached: dict[str, Mapping[TopicPartition, int]] = {}
        topics: dict[str, tuple[str, ...]] = {}
        states: dict[str, ProgressEntry] = {}
        for table, (state, ends) in zip(config.named_tables, map_parallel(of, config.named_tables), strict=True):
            if state is not None:
                states[table.name] = state
            if state is not None or ends:
                reached[table.name], topics[table.name] = ends, tuple(table.topic_patterns)
        return cls(reached, topics, states)

    def begins(self) -> dict[TopicPartition, int]:
        """Return where a new query begins to read. Partitions that no table has read are left out.

        Raises PositionRefused if two tables have read a partition differently far.
        """
        found: dict[TopicPartition, int] = {}
        for partition in sorted({partition for of in self.reached.values() for partition in of}):
            ends = {
                table: of.get(partition, 0)
                for table, of in self.reached.items()
                if takes_topic(self.topics[table], partition.topic)
            }
            if len(set(ends.values())) > 1:
                shown = first_few(f"{table} up to {end}" for table, end in sorted(ends.items(), key=lambda one: one[1]))
                raise PositionRefused(
                    f"{partition} was read differently far for the tables: {shown}. A query reads it once for all of "
                    "them, so records would be lost or duplicated. Nothing was read or written",
                    [
                        "run `tidelake ingest run` with this configuration and `--until latest` once: it brings all "
                        "tables to the same position, and the query begins there"
                    ],
                )
            found[partition] = max(ends.values())
        return found


def _state(table: TableSettings, context: TableContext, routing: Routing) -> ProgressEntry:
    """Return the table's newest snapshot with a position, of any commit user whose records these are."""
    latest = context.snapshots.latest()
    history = context.snapshots.backwards_from(latest) if latest is not None else ()
    own = (summarize(one, table.name) for one in history if one.commit_user not in table.other_users)
    newest = next((one for one in own if POSITION_PROPERTY in one.properties), None)
    return ProgressEntry.of(context.schemas.get(0).time_ms, newest, routing)


def _reached(
    table: TableSettings, context: TableContext | None, pipeline: str, progress: IdleProgress, routing: Routing
) -> dict[TopicPartition, int]:
    """Return the next offsets of a table."""
    ends: dict[TopicPartition, int] = {}
    if context is None:
        state = MISSING_TABLE
    else:
        others = table.other_users
        commits = CommitHistory(context, pipeline, others)
        registered_id = commits.registered_id()
        latest = context.snapshots.latest()
        history = context.snapshots.backwards_from(latest) if latest is not None else ()
        own = (summarize(one, table.name) for one in history if one.commit_user not in others)
        ends = dict(table_position(own).ends)
        newest = TableCommit(context, pipeline).latest_of_user()
        state = commits.read_state(newest, (), registered_id)
    recovered = recover_table(table.name, state, progress, routing)
    if not recovered.problems:
        ends |= {p: end for p, end in recovered.position.ends.items() if end > ends.get(p, -1)}
    return {p: end for p, end in ends.items() if takes_topic(table.topic_patterns, p.topic)}
