"""Who takes part in a simulated lake. Each is a process with real objects of the product.

An actor is a function of the lake and of its process. It runs until it returns, raises one of the errors that a user
may meet (`MAY_HAPPEN`), or is killed; the lake then starts it again after some time.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import pyarrow as pa

import tidelake
from tests.simulation.auditor import DEAD_LETTERS, AuditedTable, Finding, Values, apply_change, width_of
from tests.simulation.event_loop import run_coroutine
from tests.simulation.log import ORDERS, TOPIC, WIDTHS, LogSource, table_of
from tests.simulation.scheduler import Process
from tidelake.catalog import Catalog
from tidelake.checkpoint.offsets import TopicPartition
from tidelake.consumers import TableConsumers
from tidelake.errors import (
    BadInput,
    CommitConflict,
    CommitOutcomeUnknown,
    CorruptFile,
    PositionRefused,
    SnapshotExpired,
    SourceUnavailable,
    WriterFenced,
)
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags
from tidelake.ingest.replay.replay import DeadLetterReplay
from tidelake.ingest.settings import Config
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.ddl.schema_changes import SchemaChange
from tidelake.storage.fileio.base import FileIO

if TYPE_CHECKING:
    from tests.simulation.lake import Lake

TOTALS: Final = "shop.totals"
COLUMNS: Final = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string()), pa.field("n", pa.int64())]
)
NARROW_COLUMNS: Final = COLUMNS.set(2, pa.field("n", pa.int16()))  # of tables of the log, if it has large numbers
USERS: Final = {"writer": "one", "second writer": "two", "branch writer": "branch"}
_FIRST_WRITTEN_KEY: Final = 1_000  # the database's keys are below

CONFIG: Final = """
warehouse: {warehouse}
pipeline: shop
source: {{type: change-log-folder, path: /unused}}
checkpoint: {{interval_ms: {interval_ms}}}
bootstrap: {bootstrap}
errors: {errors}
schema_evolution: {evolution}
tables: [{tables}]
"""

_ALTERED: Final = (
    ("num-sorted-run.compaction-trigger", "2"),
    ("num-sorted-run.compaction-trigger", "5"),
    ("snapshot.num-retained.max", "4"),
    ("file.compression", "zstd"),
)

# Errors that a user may meet, whatever the seed does, with what the message of BadInput must contain.
MAY_HAPPEN: Final = (CommitConflict, CommitOutcomeUnknown, SourceUnavailable, WriterFenced, SnapshotExpired)
_ADVICE: Final = (
    "load it again",
    "Load the table again",
    "for a compaction",
    "for the compaction",
    "open the table again",
    "Open the table again",
    "has no snapshot",
    "no snapshots",
    "already exists",
    "would announce all rows again",
    "does not exist",
    "--accept-gap",
)


def may_happen(error: BaseException) -> bool:
    """Return whether this is an error that the product documents, or one that the simulated store made."""
    if isinstance(error, ExceptionGroup):
        return all(may_happen(one) for one in error.exceptions)
    if isinstance(error, MAY_HAPPEN):
        return True
    if isinstance(error, OSError) and "(simulated)" in str(error):
        return True
    if isinstance(error, CorruptFile) and "was created while its snapshot expired" in str(error):
        return True  # whoever creates the tag sleeps, and will delete it
    return isinstance(error, BadInput) and any(advice in str(error) for advice in _ADVICE)


def catalog_of(lake: Lake, io: FileIO) -> Catalog:
    return Catalog(FileSystemCatalog(io, lake.warehouse))


def config_of(lake: Lake) -> Config:
    """The configuration of the pipeline."""
    errors = f"{{tolerance: all, dead_letters: {{table: {DEAD_LETTERS}}}}}" if lake.has_nonsense else "{}"
    names = lake.database.tables
    tables = ", ".join(f"{{name: {name}, match: {name.replace('shop.', 'public.')}}}" for name in names)
    text = CONFIG.format(
        warehouse=lake.warehouse,
        interval_ms=lake.swarm.interval_ms,
        errors=errors,
        tables=tables,
        bootstrap=lake.swarm.bootstrap,
        evolution="{exclude: [alter.column.type]}" if lake.swarm.has_large_numbers else "{}",
    )
    return parse_config(text, "shop.yaml", (), {}, "shop")


def pipeline(lake: Lake, process: Process, io: FileIO) -> None:
    """`tidelake ingest run`, until it is fenced or killed."""
    config, names = config_of(lake), lake.database.tables
    flags = parse_recovery_flags(sorted(lake.accepts_gap), [], [], names)
    source = lambda: LogSource(lake.log, lake.scheduler, lake.swarm.batch_records)  # noqa: E731
    built = build_pipeline(config, flags, io=io, open_source=source)

    async def run() -> None:
        lake.stops[process] = built.stop
        lake.pipelines[process] = built
        await built.run()

    try:
        run_coroutine(lake.scheduler, process, lake.kit.ThreadPoolExecutor(6, "asyncio"), run())
    except PositionRefused as error:
        lake.accepts_gap |= {name for name in names if f"--accept-gap {name}" in str(error)}
        raise
    except BadInput as error:  # another start has accepted it
        lake.accepts_gap -= {name for name in names if f"--accept-gap {name}" in str(error)}
        raise
    finally:
        lake.stops.pop(process, None)
        if any(sink.is_bootstrapping for sink in list(built.sinks.values())):
            lake.covered["end of a run, bootstrapping"] += 1
        lake.count_end(process)


def database(lake: Lake) -> None:
    """Changes rows. It is part of the world, and never dies."""
    random, left = lake.scheduler.random, lake.swarm.snapshot_rows
    while not lake.is_ending:
        lake.pause(random.choice((10, 200, 3_000)))
        if lake.is_ending:
            return
        for _ in range(random.choice((1, 1, 5, 20))):
            if left > 0:
                left -= 1
                lake.database.send_snapshot_row()
            else:
                lake.database.change()
        if random.random() < 0.1:
            lake.log.mark(random.randrange(8), 1)


def connector(lake: Lake) -> None:
    """What happens to the database's table, its connector and its topic beside changes of rows. It never dies."""
    random, log, source = lake.scheduler.random, lake.log, lake.database
    while not lake.is_ending:
        lake.pause(random.choice((500, 5_000, 40_000)))
        if lake.is_ending:
            return
        event = random.choice(lake.swarm.source_events)
        lake.covered[event] += 1
        lake.scheduler.note_of(lake.world, event)
        name = random.choice(list(log.partitions))
        tables = [lake.auditor.tables[table] for table in source.tables]
        reached = min(table.ends.get(name, 0) for table in tables)
        match event:
            case "connector restarts":
                source.restart_connector()
            case "snapshot is read again":
                source.read_again()
            case "aborted transactions":
                log.mark(random.randrange(8), random.choice((2, 50)))
            case "log compaction":
                log.is_to_be_compacted = True
            case "retention" if all(table.topic_id == log.topic_id for table in tables):
                log.retain(name, reached)
            case "lost records":
                log.has_lost = True
                end = len(log.partitions[name].records)
                log.retain(name, random.randint(min(reached, end), end))
            case "topic is created again":
                source.create_topic_again()
            case "new partitions":
                log.add_partition()
                source.keys += 8
            case "truncates":
                source.truncate()
            case "nonsense":
                source.send_nonsense()
            case "new columns" if len(source.columns) < 5:
                source.add_column()


def writer_of(user: str, table: str) -> Callable[[Lake, Process, FileIO], None]:
    """A program that commits rows with its own user, and repeats what it does not know to be committed."""

    return lambda lake, process, io: _write(lake, process, io, user, table, lake.auditor.tables[table])


def branch_writer(lake: Lake, process: Process, io: FileIO) -> None:
    """A program that writes to a branch of the table that the others write, compacts it and expires its snapshots."""
    random, main = lake.scheduler.random, lake.auditor.tables[TOTALS]
    while not lake.is_ending or any(lake.is_planned("branch", one.name) for one in main.branches.values()):
        lake.pause(random.choice((200, 3_000)))
        settled = {name: one for name, one in main.branches.items() if one.is_settled}
        unfinished = [name for name, one in settled.items() if lake.is_planned("branch", one.name)]
        if not settled or (lake.is_ending and not unfinished):
            continue
        name = random.choice(unfinished or list(settled))
        lake.branch_writers[process] = name
        _write(lake, process, io, "branch", settled[name].name, settled[name])
        if random.random() < 0.3:
            catalog_of(lake, io).table(settled[name].name).compact(full=random.random() < 0.5)
        if random.random() < 0.3:
            catalog_of(lake, io).table(settled[name].name).expire(retain_min=1, retain_max=2, retain_ms=1)
        del lake.branch_writers[process]


def _write(lake: Lake, process: Process, io: FileIO, user: str, table: str, audited: AuditedTable) -> None:
    random = lake.scheduler.random
    # A new branch may have what the user committed to another one, by a fast-forward between: it goes on after that.
    used = max((identifier for (other, _), (identifier, _) in lake.writers.items() if other == user), default=0)
    progress = lake.writers.setdefault((user, table), [used, False])  # identifier, whether it is planned
    # A commit can be repeated until its snapshot expires.
    progress[1] = progress[1] and not audited.is_forgotten(user, progress[0])
    writer = catalog_of(lake, io).table(table).writer(commit_user=user)
    try:
        while not lake.is_ending or progress[1]:
            if not progress[1]:
                lake.pause(random.choice((50, 2_000, 20_000)))
                if lake.is_ending:
                    break
                progress[0] += 1
                audited.planned[user, progress[0]] = _some_rows(lake, audited)
                progress[1] = True
            identifier = progress[0]
            rows = audited.planned[user, identifier]
            if random.random() < 0.2 and len(rows) > 1:
                writer.write(_arrow(rows[:1]))
                lake.pause(random.randrange(1_000))
                writer.write(_arrow(rows[1:]))
            else:
                writer.write(_arrow(rows))
            while True:
                try:
                    if writer.commit(identifier) is None and audited.is_forgotten(user, identifier):
                        # Committed before, and expired: its own files can't be told from those any more, and stay.
                        lake.store.disturbed.add(process.name)
                    break
                except CommitOutcomeUnknown as error:
                    lake.covered["unknown outcome, writer"] += 1
                    lake.store.disturbed.add(process.name)  # nothing is deleted then
                    if "Look whether its rows are in the table" in str(error):
                        return  # `is_forgotten` looks, when the table is opened anew
                    lake.pause(random.choice((100, 5_000)))
            lake.scheduler.yield_now()  # the auditor may not have looked yet
            if (user, identifier) not in audited.committed:
                raise Finding(f"{table}: {user} was told that {identifier} is committed, and it is not")
            progress[1] = False
            lake.records += len(rows)
            if random.random() < 0.2:
                return  # and open the table anew
    finally:
        writer.close()


def _some_rows(lake: Lake, table: AuditedTable) -> list[tuple[int, Values | None]]:
    random = lake.scheduler.random
    rows: dict[int, Values | None] = {}
    for _ in range(random.choice((1, 3, 12))):
        key = _FIRST_WRITTEN_KEY + random.randrange(16)
        lake.values += 1
        note = lake.note(f"w{lake.values:06d}")
        rows[key] = (
            random.choice([None, note, note]),
            random.choice([None, lake.values, lake.values]),
        )
    if lake.swarm.engine == "deduplicate" or table.has_log_rows:
        for key in list(rows):
            if random.random() < 0.2:
                rows[key] = None
    return list(rows.items())


def _arrow(rows: list[tuple[int, Values | None]]) -> pa.Table:
    kinds = [3 if values is None else 0 for _, values in rows]
    columns = [
        [key for key, _ in rows],
        [None if values is None else values[0] for _, values in rows],
        [None if values is None else values[1] for _, values in rows],
    ]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, COLUMNS, strict=True)]
    return pa.table([*arrays, pa.array(kinds, pa.int8())], [*COLUMNS.names, "_VALUE_KIND"])


def _any_table(lake: Lake) -> str:
    return lake.scheduler.random.choice((*lake.database.tables, TOTALS))


def compaction(lake: Lake, process: Process, io: FileIO) -> None:
    """A job that compacts."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((1_000, 20_000)))
        catalog_of(lake, io).table(_any_table(lake)).compact(full=random.random() < 0.4)


def expiry(lake: Lake, process: Process, io: FileIO) -> None:
    """A job that expires snapshots."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((1_000, 30_000)))
        keep = random.choice((1, 2, 5))
        catalog_of(lake, io).table(_any_table(lake)).expire(retain_min=keep, retain_max=keep + 1, retain_ms=1)


def orphans(lake: Lake, process: Process, io: FileIO) -> None:
    """A job that removes what no snapshot names."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((2_000, 20_000, 600_000)))
        # Every commit here takes less than these two hours: a paused process sleeps for less.
        catalog_of(lake, io).table(_any_table(lake)).clean_orphans(older_than_ms=7_200_000)


def tags(lake: Lake, process: Process, io: FileIO) -> None:
    """Creates tags and deletes them."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((1_000, 30_000)))
        table = catalog_of(lake, io).table(_any_table(lake))
        present = sorted(table.tags())
        if present and random.random() < 0.5:
            table.delete_tag(random.choice(present))
        elif table.context.snapshots.latest_id() is not None:
            lake.values += 1
            table.create_tag(f"tag{lake.values}", retain=timedelta(hours=1) if random.random() < 0.5 else None)


def branches(lake: Lake, process: Process, io: FileIO) -> None:
    """Creates branches and deletes them."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((1_000, 10_000)))
        is_written = "branch writer" in lake.swarm.actors and random.random() < 0.6
        table = catalog_of(lake, io).table(TOTALS if is_written else _any_table(lake))
        audited = lake.auditor.tables[table.name].branches
        written = {name for writer, name in lake.branch_writers.items() if not writer.is_dead}
        # Its writers are stopped first, and know what they have committed.
        in_use = {n for n, one in audited.items() if n in written or lake.is_planned("branch", one.name)}
        present = sorted(set(table.branches()) - in_use)
        if present and random.random() < 0.5:
            name = random.choice(present)
            if name in audited:
                audited[name].is_settled = False
            table.delete_branch(name)
        elif (latest := table.context.snapshots.latest_id()) is not None:
            lake.values += 1
            name = f"branch{lake.values}"
            table.create_branch(name, snapshot=latest)
            lake.scheduler.yield_now()  # the auditor may not have looked yet
            if name in lake.auditor.tables[table.name].branches:
                lake.auditor.tables[table.name].branches[name].is_settled = True


def fast_forward(lake: Lake, process: Process, io: FileIO) -> None:
    """Replaces the main branch of the table by another one. Nobody else works with the table."""
    table = catalog_of(lake, io).table(TOTALS)
    try:
        table.fast_forward(lake.fast_forwards_to)
    except BadInput as error:
        if "the snapshots in between have expired" not in str(error):
            raise
        lake.is_fast_forward_refused = True  # another branch has replaced those that this one began with
        lake.fast_forwards_to = ""
        return
    for consumer in TableConsumers(table).list():
        TableConsumers(table).delete(consumer.name)
    lake.fast_forwards_to = ""


def alterer(lake: Lake, process: Process, io: FileIO) -> None:
    """Adds columns, and sets options."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((20_000, 200_000)))
        lake.values += 1
        name = _any_table(lake)
        change: SchemaChange = (
            tidelake.AddColumn(f"x{lake.values}", "INT")
            if random.random() < 0.5
            else tidelake.SetOption(*random.choice(_ALTERED))
        )
        catalog_of(lake, io).alter_table(name, [change])


def rescale(lake: Lake, process: Process, io: FileIO) -> None:
    """Changes the number of buckets of a table that has a fixed one. What was interrupted is done again: until then
    writers are refused.
    """
    random = lake.scheduler.random
    while True:
        for table, number in list(lake.rescales.items()):
            try:
                catalog_of(lake, io).rescale_table(table, number)
            except BadInput:  # rows or changes wait for a compaction
                catalog_of(lake, io).table(table).compact(full=True)
                catalog_of(lake, io).rescale_table(table, number)
            if lake.rescales.get(table) == number:
                del lake.rescales[table]
        if lake.is_ending:
            return
        lake.pause(random.choice((60_000, 300_000)))
        table = _any_table(lake)
        if lake.auditor.tables[table].options["bucket"] != "-1":
            lake.rescales[table] = number = random.choice((1, 2, 3))
            catalog_of(lake, io).rescale_table(table, number)
            del lake.rescales[table]


def replay(lake: Lake, process: Process, io: FileIO) -> None:
    """An operator who widens the column that dead letters don't fit, and replays them. At the end, all of them."""
    random, catalog = lake.scheduler.random, catalog_of(lake, io)
    while True:
        lake.pause(random.choice((5_000, 60_000)))
        is_last = lake.is_ending and lake.has_read_all
        for name in lake.database.tables:
            width = WIDTHS.index(width_of(catalog.table(name).context))
            if width + 1 < len(WIDTHS) and (is_last or random.random() < 0.5):
                wider = WIDTHS[-1] if is_last else WIDTHS[width + 1]
                catalog.alter_table(name, [tidelake.UpdateColumnType("n", wider)])
        source = LogSource(lake.log, lake.scheduler, lake.swarm.batch_records)
        work = DeadLetterReplay(config_of(lake), source, io)
        try:
            reports = run_coroutine(lake.scheduler, process, lake.kit.ThreadPoolExecutor(2, "asyncio"), work.run())
        except PositionRefused as error:
            _decide_interrupted(lake, catalog, int(str(error).partition("the replay ")[2].partition(" ")[0]))
            continue
        for outcome, letters in [pair for report in reports for pair in report.outcomes.items()]:
            lake.covered[f"dead letters {outcome}"] += letters
        if is_last:
            lake.auditor.is_replayed = True
            return
        if lake.is_ending:
            lake.scheduler.sleep(1_000_000_000)


def _decide_interrupted(lake: Lake, catalog: Catalog, replay_id: int) -> None:
    """Do what the message of a replay says whose snapshots have expired: the operator looks into the tables."""
    lake.covered["interrupted replay, expired"] += 1
    letters = catalog.table(DEAD_LETTERS)
    mine = tidelake.col("replay_id") == replay_id
    for row in letters.scan(filter=mine, columns=["id", "partition", "offset", "replayed_at"]).to_arrow().to_pylist():
        change, _ = lake.log.partitions[TopicPartition(TOPIC, row["partition"])].too_large[row["offset"]]
        this = tidelake.col("id") == row["id"]
        if row["replayed_at"] is None and replay_id in lake.auditor.tables[table_of(change)].replays:
            letters.delete(this)
        elif row["replayed_at"] is None:
            letters.update(this, {"replay_id": None})


def follower_of(name: str) -> Callable[[Lake, Process, FileIO], None]:
    """Keeps a copy of a table from its changelog. Its copy and its position survive it together."""

    def follow(lake: Lake, process: Process, io: FileIO) -> None:
        random = lake.scheduler.random
        kept = lake.copies.setdefault(name, {})
        table = ORDERS if name.endswith("orders") else TOTALS
        audited = lake.auditor.tables[table]
        if audited.producer == "none":
            while not lake.is_ending:
                lake.pause(600_000)
            return
        copy, position, seen = kept.get(table, ({}, None, 0))
        copy = dict(copy)
        if position is not None:
            lake.pause(random.choice((100, 30_000)))
        opened = catalog_of(lake, io).table(table)
        registered = opened.context.paths.consumer(name)
        is_registered, kept_from = registered in lake.store.objects, 0
        try:
            if position is None:
                earliest = opened.context.snapshots.earliest_id() or 1
                copy, seen = dict(audited.fold_at.get(earliest - 1, {})), earliest - 1  # what it missed
                follower = opened.follower(start=earliest, consumer=name)
            else:
                follower = opened.follower(start=position, consumer=name)
            while not lake.is_ending:
                changes = follower.step()
                if changes is None:
                    lake.pause(max(100, follower.wait_ms))
                    continue
                for batch in changes:
                    if any(seen < number <= batch.snapshot_id for number in audited.truncated_at):
                        copy.clear()
                    seen = batch.snapshot_id
                    for row in batch.rows.to_pylist():
                        exact = audited.producer != "input"
                        problem = apply_change(
                            copy, row["_VALUE_KIND"], row["id"], (row["note"], row["n"]), is_exact=exact
                        )
                        if problem:
                            raise Finding(f"{table}: {name} at snapshot {batch.snapshot_id}: {problem}")
                    if batch.is_last:
                        expected = audited.fold_at.get(batch.snapshot_id)
                        if expected is not None and expected != copy:
                            raise Finding(f"{table}: {name} has another copy after snapshot {batch.snapshot_id}")
                        lake.records += batch.rows.num_rows
                    if random.random() < 0.1:
                        lake.pause(random.choice((10, 10_000)))
                kept[table] = (dict(copy), str(follower.position), seen)
                if not kept_from and registered in lake.store.objects:
                    kept_from = audited.last_id + 1  # an expiry that began before may not have seen the consumer
                if random.random() < 0.2:
                    return  # and continue much later
        except SnapshotExpired as error:
            must_wait = 0 < kept_from <= seen + 1 and registered in lake.store.objects
            if must_wait or (position is not None and is_registered):
                raise Finding(f"{table}: {name} was to be waited for, and lost its snapshot: {error}") from error
            kept.pop(table, None)

    return follow


def reader(lake: Lake, process: Process, io: FileIO) -> None:
    """Reads tables at any snapshot that exists."""
    random = lake.scheduler.random
    while not lake.is_ending:
        lake.pause(random.choice((500, 10_000)))
        name = _any_table(lake)
        audited, table = lake.auditor.tables[name], catalog_of(lake, io).table(name)
        latest = table.context.snapshots.latest_id()
        if latest is None:
            continue
        number = latest if random.random() < 0.5 else random.randint(max(1, latest - 5), latest)
        try:
            found = table.scan(columns=["id", "note", "n"], snapshot=number).to_arrow().to_pylist()
        except SnapshotExpired:
            if number >= audited.earliest:
                raise Finding(f"{name}: snapshot {number} exists, and reads as expired") from None
            continue
        expected = audited.rows_at.get(number)
        rows = {row["id"]: (row["note"], row["n"]) for row in found}
        if expected is not None and rows != expected:
            raise Finding(f"{name}: a reader found other rows in snapshot {number}")
        lake.records += len(found)
