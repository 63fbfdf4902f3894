"""`tidelake sync-table` and `tidelake sync-database`: Paimon's actions.

Each option may be written with `_` instead of `-`, as there.
"""

from __future__ import annotations

import argparse
from typing import Any

from tidelake.cli.arguments.common import Verbs, command
from tidelake.cli.arguments.pipelines import add_settings
from tidelake.cli.arguments.values import names, pair

_DETAILS = "The same as a configuration file and `tidelake ingest run`; --show prints that file."


def add_sync_table(nouns: Verbs) -> None:
    sync = command(
        nouns,
        "sync-table",
        "sync_table:sync_table",
        "run a pipeline from a Kafka topic into one table, by the arguments of Paimon's kafka_sync_table",
        _DETAILS,
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
        "run a pipeline from Kafka topics into as many tables, by the arguments of Paimon's kafka_sync_database",
        f"Tables are made when their first record comes, also while it runs. {_DETAILS}",
        log_level="info",
    )
    for name in ("warehouse", "database"):
        sync.add_argument(f"--{name}", required=True)
    sync.add_argument(
        "--name", metavar="TEMPLATE", help="of tables: {schema}_{table}; also {database}, {topic}. Default: {table}"
    )
    for name, help_ in (
        ("table-prefix", "before the source table's name"),
        ("table-suffix", "behind it"),
    ):
        _add(sync, name, default="", metavar="TEXT", help=help_)
    for name, help_ in (
        ("including-tables", "regular expression that names of source tables match whole; default: all"),
        ("excluding-tables", "of those that are left out"),
        ("including-dbs", "the same for names of source databases"),
        ("excluding-dbs", "of those that are left out"),
    ):
        _add(sync, name, metavar="REGEX", help=help_)
    for name, help_ in (
        ("table-mapping", "source table to the table's name, repeatable"),
        ("table-prefix-db", "source database to its prefix, repeatable"),
        ("table-suffix-db", "source database to its suffix, repeatable"),
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
        help="false: {table} is database_table, and tables of one name in several databases stay apart",
    )
    _add_common(sync, "DATABASE")


def _add_common(sync: argparse.ArgumentParser, pipeline: str) -> None:
    for name, help_ in (
        ("primary-keys", "columns, separated by commas; left out: the key of the records"),
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
        help="false: without --primary-keys a table that is made has no key, whatever key the records have",
    )
    for name, help_ in (
        ("computed-column", "'name=function(column, …)', repeatable"),
        ("kafka-conf", "properties.bootstrap.servers=…, topic=…, value.format=…; repeatable"),
        ("catalog-conf", "options of the warehouse and its store, repeatable"),
        ("table-conf", "options of tables that are made, repeatable"),
    ):
        _add(sync, name, type=pair, action="append", default=[], metavar="KEY=VALUE", help=help_)
    _add(sync, "metadata-column", type=names, action="extend", default=[], metavar="NAMES", help="topic, offset, …")
    _add(sync, "metadata-column-prefix", default="", metavar="TEXT", help="before the names of these")
    sync.add_argument("--pipeline", metavar="NAME", help=f"its positions are kept under it; default: {pipeline}")
    sync.add_argument("--show", action="store_true", help="print the configuration file that this is, and do nothing")
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
