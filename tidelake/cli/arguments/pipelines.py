"""`tidelake demo`, `tidelake ingest …` and `tidelake spark …`."""

from __future__ import annotations

import argparse

from tidelake.cli.arguments.common import Verbs, add_warehouse, command
from tidelake.cli.arguments.values import duration_s, epoch_ms_of, pair, positive


def add_demo(nouns: Verbs) -> None:
    summary = "a small shop's changes become tables, live, proven at the end"
    parser = command(nouns, "demo", "demo:demo", summary, log_format="text")  # it draws a picture, also into a file
    parser.add_argument(
        "--engine",
        choices=("auto", "spark", "asyncio"),
        default="auto",
        help="what runs the pipeline; auto: Spark if PySpark and Java are here, else asyncio",
    )
    parser.add_argument("--directory", metavar="DIR", help="empty or new; default: a new one for temporary files")
    parser.add_argument("--records", type=positive, default=60_000, metavar="N", help="default: 60000")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="another seed, another shop; default: 1")
    parser.add_argument(
        "--pace", type=duration_s, default=1.2, metavar="SECONDS", help="between files of the change log; default: 1.2"
    )


def add_ingest(verbs: Verbs) -> None:
    run = command(
        verbs,
        "run",
        "ingest:run",
        "run a pipeline until its source ends, or for ever",
        "Ctrl-C or SIGTERM: commits what was read, then ends. A second one ends at once; nothing is lost either way.",
        log_level="info",
    )
    _add_config(run)
    bounds = run.add_mutually_exclusive_group()
    bounds.add_argument(
        "--until", choices=("latest",), help="end where the source ends now: over `source.until` of the configuration"
    )
    bounds.add_argument(
        "--until-timestamp",
        type=epoch_ms_of,
        metavar="TIME",
        help="Kafka: end before the first record of that ISO time or later",
    )
    _add_ways_out(run)
    plan = command(verbs, "plan", "ingest:plan", "show what `run` would do: source, tables, positions; writes nothing")
    _add_config(plan)
    plan.add_argument("--details", action="store_true", help="name every topic and partition of each table")
    plan.add_argument(
        "--sample",
        type=int,
        metavar="RECORDS",
        default=0,
        help="read so many of the newest records, and say what an hour like them comes to: commits, files, bytes",
    )
    _add_ways_out(plan)

    _add_status(verbs)


def add_completion(nouns: Verbs) -> None:
    summary = "a script that completes commands and options"
    parser = command(
        nouns,
        "completion",
        "completion:completion",
        summary,
        "bash: put it into ~/.local/share/bash-completion/completions/tidelake",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def _add_status(verbs: Verbs) -> None:
    status = command(verbs, "status", "status:status", "ask a running pipeline how it does; exit code 1: not well")
    _add_config(status)
    status.add_argument("--url", help="of its endpoint; default: what `metrics` says, on this machine")
    status.add_argument("--watch", action="store_true", help="again every 2 s, until Ctrl-C")


def add_dead_letters(verbs: Verbs) -> None:
    for name, function, summary in (
        ("list", "list_", "records that were set aside, and why; without what they hold"),
        ("show", "show", "the same with key, value and headers"),
        ("replay", "replay", "read them again: the tables become what they would have been"),
    ):
        details = (
            "Exactly once; a row that changed since keeps its newer values. Stop the pipeline first."
            if name == "replay"
            else ""
        )
        parser = command(verbs, name, f"dead_letters:{function}", summary, details)
        _add_config(parser)
        parser.add_argument("--where", metavar="CONDITION", help="only these, e.g. \"error_code = 'BAD_RECORD'\"")
        if name == "replay":
            parser.add_argument("--dry-run", action="store_true", help="say what would be done; write nothing")
        else:
            parser.add_argument("--limit", type=positive, metavar="N", help="no more than so many")


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="default: that of spark-submit, else local[*]")
    parser.add_argument(
        "--conf",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the Spark session, repeatable",
    )


def add_spark(verbs: Verbs) -> None:
    run = command(
        verbs,
        "run",
        "spark:run",
        "run a pipeline's configuration on Spark Structured Streaming",
        "Positions are kept in the tables and in Spark's checkpoint directory: keep that for the life of the pipeline.",
        log_level="info",
    )
    _add_query(run)
    _add_session(run)
    submit = command(
        verbs,
        "submit",
        "spark:submit",
        "run a pipeline's configuration on a cluster, with spark-submit",
        "What stands behind `--` goes to spark-submit as it is: `-- --master spark://host:7077`.",
        log_level="info",
    )
    _add_query(submit)
    submit.set_defaults(passed_on=())
    call = command(
        verbs,
        "call",
        "spark:call",
        "call one of Paimon's procedures on Spark",
        "compact, expire_snapshots, create_tag, rollback, remove_orphan_files, …; arguments as Paimon names them.",
    )
    call.add_argument("procedure", metavar="NAME", help="as in tidelake.spark.procedures")
    call.add_argument(
        "arguments",
        nargs="*",
        type=pair,
        metavar="ARGUMENT=VALUE",
        help="right behind the name: table=db.t order_by=a,b …",
    )
    add_warehouse(call)
    _add_session(call)


def _add_query(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint directory; default: <pipeline>.spark in the warehouse"
    )


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", metavar="CONFIG", help="YAML file; see docs/configuration.md")
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="over the file and the environment: --set checkpoint.interval_ms=5000, repeatable",
    )


def _add_ways_out(parser: argparse.ArgumentParser) -> None:
    ways = parser.add_argument_group(
        "options for a pipeline that refused to go on",
        "Each is for one start, and kept in the table's next snapshot.",
    )
    ways.add_argument(
        "--accept-gap",
        action="append",
        default=[],
        metavar="TABLE",
        help="go on beyond what is lost; nothing comes twice",
    )
    ways.add_argument(
        "--rewind-to",
        action="append",
        default=[],
        metavar="TABLE=WHERE",
        help="read again from `earliest`, an ISO time, or TOPIC:PARTITION:OFFSET,…",
    )
    ways.add_argument(
        "--from-snapshot",
        action="append",
        default=[],
        metavar="TABLE=ID",
        help="go on where this snapshot of the table ended",
    )
    ways.add_argument(
        "--skip-record",
        action="append",
        default=[],
        metavar="TOPIC:PARTITION:OFFSET",
        help="pass over this record, which stops the pipeline; it becomes a dead letter",
    )
