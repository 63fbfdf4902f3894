"""The connectors whose records can be read without a schema: the units of their times, by default.

A connector that is not listed sends times in a unit that nobody knows: its numbers are refused until the configuration
declares the unit. Dates are days since 1970-01-01 on all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BY_COLUMN: Final = ""  # the unit of the column's precision: ms up to 3 digits, us up to 6, else ns


@dataclass(frozen=True, slots=True)
class ConnectorRules:
    """How a connector sends times if its records have no schema, and nothing is configured.

    title: its name for people.
    source: where the rule comes from.
    times: the unit of times of day, or BY_COLUMN; None if no number is a time of day.
    timestamps: the unit of timestamps, or BY_COLUMN; None if no number is a timestamp.
    has_sets: whether a text for an ARRAY column, of which no schema says more, has the labels of a SET.
    format: the format that reads its records, if no format of Debezium's envelope does.
    """

    title: str
    source: str
    times: str | None = BY_COLUMN
    timestamps: str | None = BY_COLUMN
    has_sets: bool = False
    format: str | None = None


_ADAPTIVE: Final = "`RelationalDatabaseConnectorConfig.TIME_PRECISION_MODE`: adaptive"
_MICROSECOND_TIMES: Final = "`BinlogConnectorConfig.TIME_PRECISION_MODE`: adaptive_time_microseconds"

CONNECTORS: Final[Mapping[str, ConnectorRules]] = {
    "mysql": ConnectorRules("MySQL", _MICROSECOND_TIMES, times="us", has_sets=True),
    "mariadb": ConnectorRules("MariaDB", _MICROSECOND_TIMES, times="us", has_sets=True),
    "vitess": ConnectorRules(
        "Vitess", "`VitessConnectorConfig.TIME_PRECISION_MODE`: adaptive_time_microseconds", times="us", has_sets=True
    ),
    "ticdc": ConnectorRules(
        "TiCDC", "tiflow `codec/debezium/codec.go`: MicroTime, MySQL's timestamps", times="us", has_sets=True
    ),
    "postgresql": ConnectorRules("PostgreSQL", _ADAPTIVE),
    "sqlserver": ConnectorRules("SQL Server", _ADAPTIVE),
    "oracle": ConnectorRules("Oracle", _ADAPTIVE),
    "db2": ConnectorRules("Db2", _ADAPTIVE),
    "informix": ConnectorRules("Informix", _ADAPTIVE),
    "cassandra": ConnectorRules(
        "Cassandra", "`CassandraTypeKafkaSchemaBuilders`: a `time` is a long of ns", times="ns", timestamps="ms"
    ),
    "spanner": ConnectorRules(
        "Spanner", "`ColumnTypeSchemaMapper`: DATE and TIMESTAMP are texts", times=None, timestamps=None
    ),
    "mongodb": ConnectorRules(
        "MongoDB", "its images are documents in a text", times=None, timestamps=None, format="debezium-bson"
    ),
}
"""By `source.connector` in lower case."""

UNNAMED: Final = ConnectorRules("a connector without a name", _ADAPTIVE)
"""Of records without `source.connector`: Debezium's default is assumed."""


def rules_of(connector: str) -> ConnectorRules | None:
    """Return the rules of a connector; None if they are not known.

    connector: `source.connector` of the records; "" if they have none.
    """
    return CONNECTORS.get(connector.lower()) if connector else UNNAMED


def refused_format(connector: str) -> str | None:
    """Return why no format of Debezium's envelope reads the connector's records, or None if one does."""
    rules = rules_of(connector)
    if rules is None or rules.format is None:
        return None
    return f"it is a record of {rules.title}'s connector: {rules.source}. Set `format: {rules.format}`"


def unknown_unit(connector: str, wanted: str) -> str:
    """Return why the unit of a connector's numbers is unknown, with the remedy.

    wanted: `time` or `timestamp`.
    """
    rules = rules_of(connector)
    why = (
        f"it is not known in which unit the connector {connector!r} sends a {wanted} without a schema"
        if rules is None
        else f"{rules.title}'s connector sends no {wanted} as a number"
    )
    return f"{why}. Declare it in source_types of the table, for example '{wanted} us', or in time_precision_mode"
