"""`tidelake ingest plan` and `schema`: where a pipeline would start and what it would write; what it may contain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import Commands, add_config, command
from tidelake.cli.commands.ingest_run import add_recovery_flags, run_command
from tidelake.cli.formatting import offsets_by_topic, size_text
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.checkpoint.moved_rows_state import MovedRowsState
    from tidelake.ingest.monitoring.observations import RunObservations
    from tidelake.ingest.pipeline.pipeline_recovery import RecoveredPipeline
    from tidelake.ingest.settings import Config, TableSettings
    from tidelake.storage.model.table import TableContext

_PARTITIONS_SHOWN = 8  # of each table


def add_plan(verbs: Commands) -> None:
    parser = command(
        verbs,
        "plan",
        plan,
        "show what `run` would do: source, tables, positions. Writes nothing",
        example="tidelake ingest plan shop.yaml --details",
    )
    add_config(parser)
    parser.add_argument("--details", action="store_true", help="list all topics and partitions of each table")
    parser.add_argument(
        "--sample",
        type=int,
        metavar="RECORDS",
        default=0,
        help="read the newest RECORDS records and estimate one hour: commits, files, bytes",
    )
    add_recovery_flags(parser)


def add_schema(verbs: Commands) -> None:
    command(
        verbs,
        "schema",
        schema,
        "print the JSON schema of a configuration, for editors",
        "An editor with a YAML language server then completes settings, explains them, and marks misspelt ones.",
        example="tidelake ingest schema > tidelake.schema.json",
    )


def schema(out: CommandOutput) -> None:
    """Print it, whatever the form of the output."""
    from tidelake.ingest.config.config_schema import config_schema

    out.document(config_schema())


def plan(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    details: bool = False,
    sample: int = 0,
    accept_gap: Sequence[str] = (),
    rewind_to: Sequence[str] = (),
    from_snapshot: Sequence[str] = (),
    skip_record: Sequence[str] = (),
) -> None:
    """Show where `run` would start. Writes nothing; reads the source's partitions.

    details: list all topics and partitions
    sample: number of the newest records to read for an estimate
    """
    import asyncio

    from tidelake.cli.rendering.estimate import print_estimate
    from tidelake.ingest.config.config import load_config
    from tidelake.ingest.pipeline import builder
    from tidelake.ingest.pipeline.configured_source import with_short_limit
    from tidelake.ingest.pipeline.freshness_plan import plan_freshness
    from tidelake.ingest.pipeline.recovery_flags import parse_recovery_flags

    found = builder.expanded(load_config(Path(config), settings))
    loaded = found.config
    tables = [table.name for table in loaded.named_tables]
    flags = parse_recovery_flags(accept_gap, rewind_to, from_snapshot, tables, skip_record)
    asked = with_short_limit(loaded)
    pipeline = builder.build_pipeline(asked, flags, run_command(config, settings), contexts=found.contexts)
    recovered = asyncio.run(pipeline.plan())
    promised = plan_freshness(asked)
    planned = {
        **_plan(loaded, recovered, pipeline.contexts),
        "lag": _lag(pipeline.observed),
        "freshness": None if promised is None else promised.to_members(),
    }
    if sample:
        from tidelake.ingest.pipeline.estimate import estimate

        sampled = asdict(asyncio.run(estimate(asked, sample)))
        if promised is not None:
            prices = [one["price"] for one in sampled["tables"]]
            planned["freshness"]["price_problem"] = promised.price_problem(prices, loaded.request_prices.currency)
        planned |= {name: sampled[name] for name in ("obstacles", "passed_over")} | {"estimate": sampled["tables"]}
    if out.is_json:
        out.document(planned)
    else:
        _print_plan(out, planned, details=details)
        if sample:
            print_estimate(out, planned, details=details)


def _plan(config: Config, recovered: RecoveredPipeline, contexts: Mapping[str, TableContext]) -> dict[str, Any]:
    from tidelake.checkpoint.moved_rows_state import MovedRowsState
    from tidelake.checkpoint.offsets import SourcePosition
    from tidelake.cli.rendering.quarantine import quarantined_tables
    from tidelake.ingest.config.config import shown
    from tidelake.ingest.decoding.process_count import decode_processes
    from tidelake.ingest.evolution.behavior import SchemaBehavior
    from tidelake.ingest.formats.registry import omitted_columns_text
    from tidelake.ingest.pipeline import builder
    from tidelake.ingest.shaping.kept_changes import shape_text
    from tidelake.storage.catalog.opening import open_catalog

    catalog = open_catalog(config.warehouse, config.warehouse_options)
    settings = shown(config)
    assumed = builder.assumed_of_columns(config, contexts, recovered.unreadable)
    return {
        "pipeline": config.pipeline,
        "last_checkpoint": recovered.last_identifier or None,
        "tables": [
            {
                "name": table.name,
                "exists": table.name in recovered.unreadable or table.name in contexts,
                "unreadable": str(recovered.unreadable[table.name]) if table.name in recovered.unreadable else None,
                "match": table.match_patterns,
                "position_from": "start" if table.name in recovered.fresh else "table",
                "next_offsets": offsets_by_topic(recovered.positions.get(table.name, SourcePosition()).ends),
                "moved_rows": _moved_rows(recovered.moved_rows.get(table.name, MovedRowsState())),
                "schema_evolution": str(SchemaBehavior(config.schema_evolution_of(table))),
                "shape": shape_text(table, config.mask_salt),
                "paused": table.paused,
                "bootstrap": _bootstrap(config, table, contexts.get(table.name)),
                "late_rows": _late_rows(contexts.get(table.name)),
                "assumed_without_schema": {one.column: one.text for one in assumed.get(table.name, ())},
            }
            for table in config.named_tables
        ],
        "new_tables": [
            {
                "name": table.name,
                "match": table.match_patterns,
                "schema_evolution": str(SchemaBehavior(config.schema_evolution_of(table))),
                "shape": shape_text(table, config.mask_salt),
            }
            for table in config.templates
        ],
        "left_behind": [
            name
            for name in recovered.progress.removed_tables([table.name for table in config.named_tables])
            if catalog.table_exists(name)
        ],
        "differences": [
            {**asdict(difference), "text": str(difference)}
            for difference in builder.configuration_differences(config, contexts)
        ],
        "quarantine": quarantined_tables(config),
        "omitted": omitted_columns_text(config.format, config.format_options),
        "reads_from": offsets_by_topic(recovered.starts),
        "decode_processes": decode_processes(config),
        "settings": settings,
    }


def _bootstrap(config: Config, table: TableSettings, context: TableContext | None) -> str | None:
    """Return what happens to a snapshot of the source, if the configuration asks for a bootstrap."""
    from tidelake.ingest.shaping.snapshot_bootstrap import bootstrap_obstacle
    from tidelake.storage.commit.manifests.snapshot_files import live_entries

    if not config.bootstrap_of(table).enabled:
        return None
    if (obstacle := bootstrap_obstacle(table, context)) is not None:
        return f"not bootstrapped: {obstacle[0]}"
    if context is not None and (latest := context.snapshots.latest()) is not None and live_entries(context, latest):
        return "not bootstrapped: the table has rows"
    return "the source's snapshot goes to the highest level, if the first records are of one"


def _late_rows(context: TableContext | None) -> str | None:
    """Return which columns of an existing table depend on the order in which rows arrive; None if no column does."""
    from tidelake.storage.merge.sequence_groups import late_rows_note

    if context is None or not context.schema.has_primary_key:
        return None
    return late_rows_note(context.schema, context.options)


def _lag(observed: RunObservations) -> dict[str, dict[int, int]] | None:
    """Return the offsets left to read, by topic and partition; None if the source doesn't know them."""
    known = {partition: at.lag for partition, at in observed.partitions.items() if at.end is not None}
    return offsets_by_topic(known) if known else None


def _moved_rows(state: MovedRowsState) -> dict[str, Any] | None:
    """Return the rows that left their key and have not arrived at another."""
    from tidelake.storage.base.clock import epoch_ms

    if state.file is None:
        return None
    oldest = None if state.oldest_ms is None else max(0, epoch_ms() - state.oldest_ms)
    return {"rows": state.rows, "bytes": state.nbytes, "oldest_age_ms": oldest, "dropped": state.dropped}


# ---------------------------------------------------------------- for people


def _print_plan(out: CommandOutput, planned: dict[str, Any], *, details: bool) -> None:
    from rich.table import Table as Grid
    from rich.text import Text

    from tidelake.cli.rendering.grids import plain_grid
    from tidelake.cli.rendering.quarantine import print_quarantine

    settings = planned["settings"]
    facts = Grid.grid(padding=(0, 3, 0, 0))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    checkpoint = settings["checkpoint"]
    for name, fact in (
        ("pipeline", planned["pipeline"]),
        ("warehouse", settings["warehouse"]),
        ("source", _source_text(settings["source"])),
        ("checkpoint", f"{_interval_text(planned)}, or {size_text(checkpoint['bytes_max'])} of records"),
        *((("freshness", _freshness_text(planned["freshness"])),) if planned["freshness"] else ()),
        ("bad records", f"tolerance: {settings['errors']['tolerance']}"),
        *((("decoding", f"in {planned['decode_processes']} processes"),) if planned["decode_processes"] else ()),
        *((("left out", planned["omitted"]),) if planned["omitted"] else ()),
        ("schema", _schema_evolution_text([*planned["tables"], *planned["new_tables"]])),
        *((("lineage", _lineage_text(settings["lineage"], planned["pipeline"])),) if settings["lineage"] else ()),
        ("lag", _lag_text(planned["lag"])),
        ("last one", f"checkpoint {planned['last_checkpoint'] or 'none: this pipeline has never committed'}"),
    ):
        facts.add_row(name, Text(str(fact)))
    grid = plain_grid("table", "reads", "state", "continues at")
    for table in planned["tables"]:
        state = "exists" if table["exists"] else "created at its first record"
        position = _position_text(table, details)
        if table["unreadable"] is not None:
            state, position = "can't be read", "unknown: the table is left out until it can be read"
        grid.add_row(*map(Text, (table["name"], ", ".join(table["match"]), state, position)))
    for table in planned["new_tables"]:
        state = "created when a record names it"
        grid.add_row(*map(Text, (table["name"], ", ".join(table["match"]), state, "the first record")))
    moved_rows_lines = [
        Text(f"{table['name']}: {_moved_rows_text(table['moved_rows'])}")
        for table in planned["tables"]
        if table["moved_rows"] is not None
    ]
    for shown_part in (facts, Text(), grid, *([Text()] if moved_rows_lines else []), *moved_rows_lines):
        out.console.print(shown_part)
    for table in planned["tables"]:
        if table["unreadable"] is not None:
            out.console.print(Text(table["unreadable"]))
    for table in [*planned["tables"], *planned["new_tables"]]:
        if table["shape"]:
            out.console.print(Text(f"{table['name']}: {table['shape']}"))
        if table.get("bootstrap"):
            out.console.print(Text(f"{table['name']}: {table['bootstrap']}"))
        if table.get("paused"):
            out.console.print(Text(f"{table['name']} is paused by the configuration"))
    print_quarantine(out, planned["quarantine"])
    for name in planned["left_behind"]:
        text = f"{name}: the pipeline wrote to it before, but no entry names it now: it gets no more records"
        out.console.print(Text(text))
    for table in planned["tables"]:
        for column, text in table["assumed_without_schema"].items():
            out.console.print(Text(f"{table['name']}, records without a schema: {column}: {text}"))
    for table in planned["tables"]:
        if table["late_rows"] is not None:
            out.console.print(Text(f"{table['name']}, late rows: {table['late_rows']}"))
    for difference in planned["differences"]:
        remedy = f"; {difference['command']}" if difference["command"] else ""
        out.console.print(Text(f"{difference['text']}: the table is not changed{remedy}"))


def _interval_text(planned: dict[str, Any]) -> str:
    if planned["freshness"] is None:
        return f"every {planned['settings']['checkpoint']['interval_ms'] / 1000:g} s"
    return f"at first every {planned['freshness']['first_interval_ms'] / 1000:g} s, then as the freshness needs"


def _freshness_text(planned: dict[str, Any]) -> str:
    """Return what is promised, and what keeps the run from it as far as this is known."""
    text = f"a record is visible after {planned['target_ms'] / 1000:g} s at most"
    if len(planned["targets"]) > 1:
        text += f"; {planned['table']} rules, as all tables share the checkpoints"
    if planned["price_an_hour_max"] is not None:
        text += f"; requests cost {planned['price_an_hour_max']:g} an hour at most"
    problems = (planned["problem"], planned.get("price_problem"))
    return "\n".join([text, *(problem for problem in problems if problem is not None)])


def _schema_evolution_text(tables: Sequence[dict[str, Any]]) -> str:
    """Return how changes of the source's columns are handled, by table if they differ."""
    texts = {table["name"]: table["schema_evolution"] for table in tables}
    if len(set(texts.values())) == 1:
        return str(next(iter(texts.values())))
    return "\n".join(f"{name}: {text}" for name, text in texts.items())


def _lineage_text(lineage: dict[str, Any], pipeline: str) -> str:
    from tidelake.ingest.openlineage.dataset_names import without_credentials

    transport = lineage["transport"]
    where = transport.get("url") or transport.get("topic") or ""
    to = f"by {transport['type']}{f' to {where}' if where else ''}" if "type" in transport else "as OPENLINEAGE_… say"
    return f"OpenLineage, job {lineage['name'] or pipeline}, {without_credentials(to)}"


def _lag_text(lag: dict[str, dict[int, int]] | None) -> str:
    if lag is None:
        return "unknown: the source doesn't report where it ends, or has no records yet"
    total = sum(sum(partitions.values()) for partitions in lag.values())
    return f"at most {total:,} records to read" if total else "nothing to read"


def _moved_rows_text(moved: dict[str, Any]) -> str:
    text = f"rows that left their key and have not arrived at another: {moved['rows']:,} ({size_text(moved['bytes'])})"
    if moved["oldest_age_ms"] is not None:
        text += f"; the oldest left {moved['oldest_age_ms'] / 1000:,.0f} s ago"
    return text + (f"; {moved['dropped']:,} more are not kept" if moved["dropped"] else "")


def _source_text(source: dict[str, Any]) -> str:
    if source["type"] == "kafka":
        topics = source["topic_pattern"] or source["topics"]
        names = topics if isinstance(topics, str) else ", ".join(topics)
        servers = source["bootstrap_servers"]
        at = servers if isinstance(servers, str) else ", ".join(servers)
        return f"Kafka at {at} · {names} · start: {source['start']} · until: {source['until']}"
    return f"folder {source['path']} · until: {source['until']}"


def _position_text(table: dict[str, Any], details: bool) -> str:
    topics = table["next_offsets"]
    partitions = sum(map(len, topics.values()))
    if partitions > _PARTITIONS_SHOWN and not details:
        where = "from `start`" if table["position_from"] == "start" else "its own position"
        topics_text = f"{len(topics)} topics" if len(topics) > 1 else next(iter(topics))
        return f"{where}: {topics_text}, {partitions:,} partitions (--details)"
    lines = [
        f"{topic} {' '.join(f'{partition}: {offset:,}' for partition, offset in ends.items())}"
        for topic, ends in table["next_offsets"].items()
    ]
    if table["position_from"] == "start":
        lines += ["from `start`"] * bool(lines)
    return "\n".join(lines or ["the first record"])
