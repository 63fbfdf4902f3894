"""`tidelake demo`, `tidelake ingest …` and `tidelake spark …`."""

from __future__ import annotations

import argparse

from tidelake.cli.arguments.common import Verbs, add_warehouse, command
from tidelake.cli.arguments.values import duration_s, epoch_ms_of, pair, positive


def add_demo(nouns: Verbs) -> None:
    summary = "run a demo: a shop's changes become tables, compared with the shop at the end"
    parser = command(nouns, "demo", "demo:demo", summary, log_format="text")  # its output is for people, also in a file
    parser.add_argument(
        "--engine",
        choices=("auto", "spark", "asyncio"),
        default="auto",
        help="engine of the pipeline; auto: Spark if PySpark and Java are installed, otherwise asyncio",
    )
    parser.add_argument("--directory", metavar="DIR", help="an empty or new directory; default: a new temporary one")
    parser.add_argument("--records", type=positive, default=60_000, metavar="N", help="default: 60000")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of the shop's random changes; default: 1"
    )
    parser.add_argument(
        "--pace",
        type=duration_s,
        default=1.2,
        metavar="SECONDS",
        help="time between files of the change log; default: 1.2",
    )


def add_ingest(verbs: Verbs) -> None:
    run = command(
        verbs,
        "run",
        "ingest:run",
        "run a pipeline until its source ends, or until stopped",
        "Ctrl-C or SIGTERM commits what was read, then ends. A second one ends at once. Nothing is lost either way.",
        log_level="info",
    )
    _add_config(run)
    bounds = run.add_mutually_exclusive_group()
    bounds.add_argument("--until", choices=("latest",), help="end where the source ends now; overrides `source.until`")
    bounds.add_argument(
        "--until-timestamp",
        type=epoch_ms_of,
        metavar="TIME",
        help="Kafka: end before the first record of this ISO time or later",
    )
    _add_recovery_flags(run)
    plan = command(verbs, "plan", "ingest:plan", "show what `run` would do: source, tables, positions. Writes nothing")
    _add_config(plan)
    plan.add_argument("--details", action="store_true", help="list all topics and partitions of each table")
    plan.add_argument(
        "--sample",
        type=int,
        metavar="RECORDS",
        default=0,
        help="read the newest RECORDS records and estimate one hour: commits, files, bytes",
    )
    _add_recovery_flags(plan)

    _add_status(verbs)


def add_completion(nouns: Verbs) -> None:
    summary = "print a script that completes commands and options in a shell"
    parser = command(
        nouns,
        "completion",
        "completion:completion",
        summary,
        "bash: write it to ~/.local/share/bash-completion/completions/tidelake",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def _add_status(verbs: Verbs) -> None:
    status = command(
        verbs, "status", "status:status", "show the status of a running pipeline; exit code 1 if it is unhealthy"
    )
    _add_config(status)
    status.add_argument("--url", help="URL of its endpoint; default: from `metrics`, on this machine")
    status.add_argument("--watch", action="store_true", help="repeat every 2 s, until Ctrl-C")


def add_dead_letters(verbs: Verbs) -> None:
    for name, function, summary in (
        ("list", "list_", "list dead letters with their errors"),
        ("show", "show", "list them with key, value and headers"),
        ("replay", "replay", "decode them again and write their rows"),
    ):
        details = (
            "Rows are written exactly once. A row that changed since keeps its newer values. Stop the pipeline first."
            if name == "replay"
            else ""
        )
        parser = command(verbs, name, f"dead_letters:{function}", summary, details)
        _add_config(parser)
        parser.add_argument("--where", metavar="CONDITION", help="only these, e.g. \"error_code = 'BAD_RECORD'\"")
        if name == "replay":
            parser.add_argument("--dry-run", action="store_true", help="only print what would be done")
        else:
            parser.add_argument("--limit", type=positive, metavar="N", help="at most this many")


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark master; default: that of spark-submit, otherwise local[*]")
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
        "Positions are in the tables and in Spark's checkpoint directory. Keep that directory as long as the pipeline.",
        log_level="info",
    )
    _add_query(run)
    _add_session(run)
    submit = command(
        verbs,
        "submit",
        "spark:submit",
        "run a pipeline's configuration on a cluster, with spark-submit",
        "Arguments after `--` are passed to spark-submit: `-- --master spark://host:7077`.",
        log_level="info",
    )
    _add_query(submit)
    submit.set_defaults(passed_on=())
    call = command(
        verbs,
        "call",
        "spark:call",
        "call a procedure of Paimon on Spark",
        "compact, expire_snapshots, create_tag, rollback, remove_orphan_files, …. Arguments have Paimon's names.",
    )
    call.add_argument("procedure", metavar="NAME", help="a procedure of tidelake.spark.procedures")
    call.add_argument(
        "arguments",
        nargs="*",
        type=pair,
        metavar="ARGUMENT=VALUE",
        help="after the name: table=db.t order_by=a,b …",
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
        help="override a setting of the file or the environment: --set checkpoint.interval_ms=5000; repeatable",
    )


def _add_recovery_flags(parser: argparse.ArgumentParser) -> None:
    recovery_flags = parser.add_argument_group(
        "options for a pipeline that refused to start",
        "Each applies to one start, and is recorded in the table's next snapshot.",
    )
    recovery_flags.add_argument(
        "--accept-gap",
        action="append",
        default=[],
        metavar="TABLE",
        help="skip the lost records and continue; no record is read twice",
    )
    recovery_flags.add_argument(
        "--rewind-to",
        action="append",
        default=[],
        metavar="TABLE=WHERE",
        help="read again from `earliest`, an ISO time, or TOPIC:PARTITION:OFFSET,…",
    )
    recovery_flags.add_argument(
        "--from-snapshot",
        action="append",
        default=[],
        metavar="TABLE=ID",
        help="continue at the position of this snapshot",
    )
    recovery_flags.add_argument(
        "--skip-record",
        action="append",
        default=[],
        metavar="TOPIC:PARTITION:OFFSET",
        help="skip this record, which stops the pipeline; it becomes a dead letter",
    )
