"""`tidelake sync-table`, `tidelake sync-database`: Paimon's `kafka_sync_table` and `kafka_sync_database`.

They take the arguments of Paimon's actions. Options may be written with `_` instead of `-`, as in Paimon.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from tidelake.cli.arguments import Commands, add_settings, command, names, pair
from tidelake.cli.output import CommandOutput

_DESCRIPTION = "The same as a configuration file and `tidelake ingest run`; --show prints that file."


# ---------------------------------------------------------------- sync-table


def add_sync_table(nouns: Commands) -> None:
    parser = command(
        nouns,
        "sync-table",
        sync_table,
        "run a pipeline from a Kafka topic into one table, with the arguments of Paimon's kafka_sync_table",
        _DESCRIPTION,
        log_level="info",
        is_service=True,
        example="tidelake sync-table --warehouse lake --database shop --table orders \\\n"
        "  --kafka-conf properties.bootstrap.servers=localhost:9092 \\\n"
        "  --kafka-conf topic=shop.orders --kafka-conf value.format=debezium-json",
    )
    for name in ("warehouse", "database", "table"):
        parser.add_argument(f"--{name}", required=True)
    _add_common(parser, "DATABASE.TABLE")


def sync_table(out: CommandOutput, *, show: bool = False, settings: Sequence[str] = (), **arguments: Any) -> None:
    """Run the pipeline of the arguments. The other arguments are those of `SyncTableArguments`.

    show: only print the configuration
    """
    from tidelake.ingest.config.sync_table import SyncTableArguments, sync_table_configuration

    configuration = sync_table_configuration(SyncTableArguments(**arguments))
    _run(out, configuration, "sync-table", settings, show=show)


# ---------------------------------------------------------------- sync-database


def add_sync_database(nouns: Commands) -> None:
    parser = command(
        nouns,
        "sync-database",
        sync_database,
        "run a pipeline from Kafka topics into many tables, with the arguments of Paimon's kafka_sync_database",
        f"A table is created at its first record, also while the pipeline runs. {_DESCRIPTION}",
        log_level="info",
        is_service=True,
        example="tidelake sync-database --warehouse lake --database shop \\\n"
        "  --kafka-conf properties.bootstrap.servers=localhost:9092 \\\n"
        "  --kafka-conf topic-pattern='shop\\..*' --kafka-conf value.format=debezium-json",
    )
    for name in ("warehouse", "database"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument(
        "--name",
        metavar="TEMPLATE",
        help="template of table names, as in {schema}_{table}; also {database}, {topic}; default: {table}",
    )
    for name, help_ in (
        ("table-prefix", "prefix of the source table's name"),
        ("table-suffix", "suffix of the source table's name"),
    ):
        _add(parser, name, default="", metavar="TEXT", help=help_)
    for name, help_ in (
        ("including-tables", "source tables to read: a regular expression that matches the whole name; default: all"),
        ("excluding-tables", "source tables to skip"),
        ("including-dbs", "source databases to read; default: all"),
        ("excluding-dbs", "source databases to skip"),
    ):
        _add(parser, name, metavar="REGEX", help=help_)
    for name, help_ in (
        ("table-mapping", "table name for a source table, repeatable"),
        ("table-prefix-db", "table prefix for a source database, repeatable"),
        ("table-suffix-db", "table suffix for a source database, repeatable"),
    ):
        _add(parser, name, type=pair, action="append", default=[], metavar="NAME=NAME", help=help_)
    _add(
        parser,
        "multiple-table-partition-keys",
        type=_table_and_columns,
        action="append",
        default=[],
        metavar="TABLE=COLUMNS",
        help="partition columns of one source table, repeatable",
    )
    _add(
        parser,
        "merge-shards",
        type=_flag,
        default=True,
        metavar="true|false",
        help="false: {table} is database_table, so tables with one name in several databases are not merged",
    )
    _add_common(parser, "DATABASE")


def sync_database(out: CommandOutput, *, show: bool = False, settings: Sequence[str] = (), **arguments: Any) -> None:
    """Run the pipeline of the arguments. The other arguments are those of `SyncDatabaseArguments`.

    show: only print the configuration
    """
    from tidelake.ingest.config.sync_database import SyncDatabaseArguments, sync_database_configuration

    configuration = sync_database_configuration(SyncDatabaseArguments(**arguments))
    _run(out, configuration, "sync-database", settings, show=show)


# ---------------------------------------------------------------- both


def _add_common(parser: argparse.ArgumentParser, pipeline: str) -> None:
    for name, help_ in (
        ("primary-keys", "columns, separated by commas; default: the key of the records"),
        ("partition-keys", "columns, separated by commas"),
        ("type-mapping", "words separated by commas: to-string, …"),
    ):
        _add(parser, name, type=names, default=(), metavar="NAMES", help=help_)
    _add(
        parser,
        "sync-primary-keys-from-source-schema",
        type=_flag,
        default=True,
        metavar="true|false",
        help="false: without --primary-keys new tables have no key, even if the records have one",
    )
    for name, help_ in (
        ("computed-column", "'name=function(column, …)', repeatable"),
        ("kafka-conf", "properties.bootstrap.servers=…, topic=…, value.format=…; repeatable"),
        ("catalog-conf", "options of the warehouse and its store, repeatable"),
        ("table-conf", "options of new tables, repeatable"),
    ):
        _add(parser, name, type=pair, action="append", default=[], metavar="KEY=VALUE", help=help_)
    _add(parser, "metadata-column", type=names, action="extend", default=[], metavar="NAMES", help="topic, offset, …")
    _add(parser, "metadata-column-prefix", default="", metavar="TEXT", help="prefix of metadata columns")
    parser.add_argument("--pipeline", metavar="NAME", help=f"name that positions are kept under; default: {pipeline}")
    parser.add_argument("--show", action="store_true", help="only print the equivalent configuration file")
    add_settings(parser)


def _add(parser: argparse.ArgumentParser, name: str, **of_argument: Any) -> None:
    underscored = name.replace("-", "_")
    parser.add_argument(f"--{name}", f"--{underscored}", dest=underscored, **of_argument)


def _table_and_columns(text: str) -> tuple[str, tuple[str, ...]]:
    table, columns = pair(text)
    return table, names(columns)


def _flag(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"{text!r}: write true or false")
    return text.lower() == "true"


def _run(out: CommandOutput, configuration: dict[str, Any], name: str, settings: Sequence[str], *, show: bool) -> None:
    from tidelake.cli.commands.ingest_run import run_config
    from tidelake.ingest.config.config import parse_config, without_secrets
    from tidelake.ingest.pipeline.recovery_flags import RecoveryFlags

    text = json.dumps(configuration, indent=2, ensure_ascii=False)  # a subset of YAML
    loaded = parse_config(text, name, settings, os.environ)
    if show:
        out.document(without_secrets(configuration))
    else:
        run_config(out, loaded, RecoveryFlags(), _command())


def _command() -> str:
    """Return the command to run this again, ready to be pasted; the user has to fill in secrets."""
    from tidelake.ingest.secrets import HIDDEN, SECRET_NAME

    parts = []
    for part in sys.argv[1:]:
        name, equals, _ = part.partition("=")
        parts.append(f"{name}={HIDDEN}" if equals and SECRET_NAME.search(name) else part)
    return shlex.join(["tidelake", *parts])
