"""The parser of all commands, and a parsed command line.

Help needs no slow module: a noun's modules are imported when the command line names it, and what a command works with
only when it runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelake.cli.arguments import ArgumentParser, CatalogAddress, Command, Commands, command, noun
from tidelake.cli.output import CommandOutput

PROGRAM: Final = "tidelake"


_EPILOG: Final = """\
exit codes:
  0  done          3  refused: it needs a decision; the message lists the options
  1  failed        4  fenced: a newer writer owns the pipeline
  2  usage       130  interrupted

Data goes to standard output, everything else to standard error. --json after any command gives output for programs.
Begin with `tidelake demo` and `tidelake help tutorial`; `tidelake help` lists all pages.
"""


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """Return the parser. Help lists the commands in the order of this function.

    only: add the verbs of this noun, and no others; None: of all
    """
    parser = ArgumentParser(
        PROGRAM,
        description="Writes change streams from Kafka and Spark into tables that every Apache Paimon reader can open.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion, nargs=0, help="show the version and exit")
    parser.set_defaults(parser=parser)
    nouns = parser.add_commands()

    def add_noun(name: str, summary: str, add_verbs: Callable[[Commands], None]) -> None:
        verbs = noun(nouns, name, summary)
        if only in (None, name):
            add_verbs(verbs)

    nouns.begin("begin")
    _add_demo(nouns)
    _add_help(nouns)
    _add_completion(nouns)
    nouns.begin("from a stream into tables")
    _add_init(nouns)
    _add_doctor(nouns)
    add_noun("ingest", "run a pipeline on this machine, from Kafka or a folder into tables", _add_ingest)
    add_noun("dead-letters", "list, show and replay dead letters", _add_dead_letters)
    _add_sync(nouns)
    add_noun("spark", "run a pipeline on Spark Structured Streaming, or call procedures", _add_spark)
    nouns.begin("work with tables")
    add_noun("table", "create, alter, read, follow, compact, expire tables, …", _add_table)
    _add_sql(nouns)
    add_noun("database", "list, create, drop and migrate databases", _add_database)
    add_noun("view", "list, show, create, rename and drop views of a catalog", _add_view)
    add_noun("catalog", "repair the entries of a catalog", _add_catalog)
    add_noun("serve", "serve a warehouse to REST clients of other engines", _add_serve)
    return parser


def command_words() -> set[tuple[str, ...]]:
    """Return the words of each command and of each noun: `("table", "show")`, `("table",)`."""
    found: set[tuple[str, ...]] = set()

    def collect(parser: argparse.ArgumentParser, words: tuple[str, ...]) -> None:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, below in action.choices.items():
                    found.add((*words, name))
                    collect(below, (*words, name))

    collect(build_parser(), ())
    return found


def _add_demo(nouns: Commands) -> None:
    from tidelake.cli.commands import demo

    demo.add_demo(nouns)


def _add_init(nouns: Commands) -> None:
    from tidelake.cli.commands import init

    init.add_init(nouns)


def _add_doctor(nouns: Commands) -> None:
    from tidelake.cli.commands import doctor

    doctor.add_doctor(nouns)


def _add_ingest(verbs: Commands) -> None:
    from tidelake.cli.commands import ingest_plan, ingest_reload, ingest_run, ingest_status, ingest_tables

    ingest_run.add_run(verbs)
    ingest_plan.add_plan(verbs)
    ingest_plan.add_schema(verbs)
    ingest_status.add_status(verbs)
    ingest_tables.add_requests(verbs)
    ingest_reload.add_reload(verbs)


def _add_dead_letters(verbs: Commands) -> None:
    from tidelake.cli.commands import dead_letters

    dead_letters.add_dead_letters(verbs)


def _add_sync(nouns: Commands) -> None:
    from tidelake.cli.commands import sync

    sync.add_sync_table(nouns)
    sync.add_sync_database(nouns)


def _add_sql(nouns: Commands) -> None:
    from tidelake.cli.commands import sql

    sql.add_sql(nouns)


def _add_spark(verbs: Commands) -> None:
    from tidelake.cli.commands import spark

    spark.add_spark(verbs)


def _add_database(verbs: Commands) -> None:
    from tidelake.cli.commands import databases, migrating

    databases.add_database(verbs)
    migrating.add_migrate_database(verbs)


def _add_catalog(verbs: Commands) -> None:
    from tidelake.cli.commands import databases

    databases.add_catalog(verbs)


def _add_table(verbs: Commands) -> None:
    from tidelake.cli.commands import (
        alter,
        bootstrapping,
        compact,
        consumers,
        expiry,
        explain,
        history,
        latency,
        migrating,
        partitions,
        reading,
        refresh,
        repairs,
        rewriting,
        row_changes,
        tables,
        verify,
    )

    for task, adders in {
        "create and change tables": (
            tables.add_create,
            alter.add_alter,
            tables.add_rename,
            tables.add_clone,
            migrating.add_migrate,
            rewriting.add_rescale,
            rewriting.add_rewrite,
            tables.add_drop,
        ),
        "look at tables": (
            tables.add_list,
            tables.add_show,
            tables.add_snapshots,
            latency.add_latency,
            explain.add_explain,
        ),
        "read rows": (reading.add_scan, reading.add_changes, reading.add_follow),
        "write rows": (
            bootstrapping.add_bootstrap,
            row_changes.add_row_changes,
            tables.add_truncate,
            refresh.add_refresh,
        ),
        "keep tables fast and small": (
            compact.add_compact,
            expiry.add_expire,
            expiry.add_orphans,
            partitions.add_expire_partitions,
            partitions.add_mark_done,
            rewriting.add_rewrite_file_index,
            tables.add_analyze,
        ),
        "history": (history.add_tags, history.add_branches, history.add_rollback, consumers.add_consumers),
        "check and repair": (
            verify.add_verify,
            repairs.add_iceberg,
            repairs.add_remove_missing_files,
            repairs.add_remove_missing_manifests,
            repairs.add_purge,
        ),
    }.items():
        verbs.begin(task)
        for add in adders:
            add(verbs)


def _add_view(verbs: Commands) -> None:
    from tidelake.cli.commands import views

    views.add_view(verbs)


def _add_serve(verbs: Commands) -> None:
    from tidelake.cli.commands import serve

    serve.add_rest(verbs)


def _add_help(nouns: Commands) -> None:
    from tidelake.cli.commands.help import DETAILS, EXAMPLES, SUMMARY

    parser = command(nouns, "help", show_help, SUMMARY, DETAILS, example=EXAMPLES)
    words = "a page, page#section, the code of an error or a command"
    parser.add_argument("words", nargs="*", metavar="WORD", help=words)


def show_help(out: CommandOutput, *, words: Sequence[str]) -> None:
    from tidelake.cli.commands.help import show

    if show(out, words, command_words):
        build_parser(only=words[0]).parse_args([*words, "--help"])


def _add_completion(nouns: Commands) -> None:
    parser = command(
        nouns,
        "completion",
        completion,
        "print a script that completes commands and options in a shell",
        "bash: write it to ~/.local/share/bash-completion/completions/tidelake",
        example="tidelake completion bash > ~/.local/share/bash-completion/completions/tidelake",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))


def completion(out: CommandOutput, *, shell: str) -> None:
    import shtab

    script: str = shtab.complete(build_parser(), shell)
    if out.is_json:
        out.document({"shell": shell, "script": script})
    else:
        out.bytes.write(script.encode() + b"\n")


class _PrintVersion(argparse.Action):
    """Prints the version. It is looked up only now, as that takes as long as all other parsing."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        sys.stdout.write(f"{PROGRAM} {version(PROGRAM)}\n")
        parser.exit()


# ---------------------------------------------------------------- a parsed command line


@dataclass(frozen=True, slots=True)
class Invocation:
    """A parsed command line.

    command: runs it
    options: keyword arguments of that function
    is_service: it runs until it is stopped, and as the only one in its process
    """

    command: Command
    options: Mapping[str, Any]
    is_service: bool
    is_json: bool
    is_debug: bool
    log_level: str
    log_format: str


def parse(arguments: Sequence[str] | None = None) -> Invocation:
    """Parse a command line. Exits with code 2 and a message if it is invalid, with 0 after `--help` and `--version`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    own = given[: given.index("--")] if "--" in given else given
    parser = build_parser(only=next((word for word in own if not word.startswith("-")), ""))
    known, unknown = parser.parse_known_args(own)
    if hasattr(known, "passed_on"):  # argparse doesn't support `--` after options that follow a positional
        known.passed_on = tuple(given[len(own) + 1 :])
    elif own != given:
        known, unknown = parser.parse_known_args(given)
    options = vars(known)
    if unknown:  # argparse would show the usage of `tidelake`, without the arguments of the command
        options["parser"].error(f"unrecognized arguments: {' '.join(unknown)}")
    if "command" not in options:
        options["parser"].print_help(sys.stderr)
        raise SystemExit(2)
    level = options.pop("log_level") or options.pop("default_log_level", "warning")
    for name in ("default_log_level", "parser", "version"):
        options.pop(name, None)
    if "catalog_options" in options:
        options["catalog"] = CatalogAddress(options.pop("warehouse"), tuple(options.pop("catalog_options")))
    return Invocation(
        options.pop("command"),
        is_service=options.pop("is_service"),
        is_json=options.pop("json"),
        is_debug=options.pop("debug"),
        log_level=level,
        log_format=options.pop("log_format"),
        options=options,
    )
