"""`tidelake sync-table` and `tidelake sync-database`, which take the arguments of Paimon's actions.

Options may be written with `_` instead of `-`, as in Paimon.
"""

from __future__ import annotations

import argparse
from typing import Any

from tidelake.cli.arguments.common import Verbs, command
from tidelake.cli.arguments.pipelines import add_settings
from tidelake.cli.arguments.values import names, pair

_SYNC_DESCRIPTION = "The same as a configuration file and `tidelake ingest run`; --show prints that file."


def add_sync_table(nouns: Verbs) -> None:
    sync = command(
        nouns,
        "sync-table",
        "sync_table:sync_table",
        "run a pipeline from a Kafka topic into one table, with the arguments of Paimon's kafka_sync_table",
        _SYNC_DESCRIPTION,
        log_level="info",
    )
    for name in ("warehouse", "database", "table"):
        sync.add_argument(f"--{name}", required=True)
    _add_common(sync, "DATABASE.TABLE")


def add_sync_database(nouns: Verbs) -> None:
    sync = command(
        nouns,
        "sync-database",
        "sync_table:sync_database",
        "run a pipeline from Kafka topics into many tables, with the arguments of Paimon's kafka_sync_database",
        f"A table is created at its first record, also while the pipeline runs. {_SYNC_DESCRIPTION}",
        log_level="info",
    )
    for name in ("warehouse", "database"):
        sync.add_argument(f"--{name}", required=True)
    sync.add_argument(
        "--name",
        metavar="TEMPLATE",
        help="template of table names, as in {schema}_{table}; also {database}, {topic}; default: {table}",
    )
    for name, help_ in (
        ("table-prefix", "prefix of the source table's name"),
        ("table-suffix", "suffix of the source table's name"),
    ):
        _add(sync, name, default="", metavar="TEXT", help=help_)
    for name, help_ in (
        ("including-tables", "source tables to read: a regular expression that matches the whole name; default: all"),
        ("excluding-tables", "source tables to skip"),
        ("including-dbs", "source databases to read; default: all"),
        ("excluding-dbs", "source databases to skip"),
    ):
        _add(sync, name, metavar="REGEX", help=help_)
    for name, help_ in (
        ("table-mapping", "table name for a source table, repeatable"),
        ("table-prefix-db", "table prefix for a source database, repeatable"),
        ("table-suffix-db", "table suffix for a source database, repeatable"),
    ):
        _add(sync, name, type=pair, action="append", default=[], metavar="NAME=NAME", help=help_)
    _add(
        sync,
        "multiple-table-partition-keys",
        type=_table_and_columns,
        action="append",
        default=[],
        metavar="TABLE=COLUMNS",
        help="partition columns of one source table, repeatable",
    )
    _add(
        sync,
        "merge-shards",
        type=_flag,
        default=True,
        metavar="true|false",
        help="false: {table} is database_table, so tables with one name in several databases are not merged",
    )
    _add_common(sync, "DATABASE")


def _add_common(sync: argparse.ArgumentParser, pipeline: str) -> None:
    for name, help_ in (
        ("primary-keys", "columns, separated by commas; default: the key of the records"),
        ("partition-keys", "columns, separated by commas"),
        ("type-mapping", "words separated by commas: to-string, …"),
    ):
        _add(sync, name, type=names, default=(), metavar="NAMES", help=help_)
    _add(
        sync,
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
        _add(sync, name, type=pair, action="append", default=[], metavar="KEY=VALUE", help=help_)
    _add(sync, "metadata-column", type=names, action="extend", default=[], metavar="NAMES", help="topic, offset, …")
    _add(sync, "metadata-column-prefix", default="", metavar="TEXT", help="prefix of metadata columns")
    sync.add_argument("--pipeline", metavar="NAME", help=f"name that positions are kept under; default: {pipeline}")
    sync.add_argument("--show", action="store_true", help="only print the equivalent configuration file")
    add_settings(sync)


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
