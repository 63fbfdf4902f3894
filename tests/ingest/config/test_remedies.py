"""A refused configuration names a remedy, and with it the configuration is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import pytest

from tidelake.errors import ConfigError
from tidelake.ingest.config.config import parse_config

GOOD: Final = """\
warehouse: /lake
source:
  type: kafka
  bootstrap_servers: broker:9092
  topics: [a, b]
tables:
  - name: shop.orders
    primary_key: [id]
"""
KAFKA: Final = "  topics: [a, b]\n"
TABLE: Final = "    primary_key: [id]\n"
FOLDER: Final = "warehouse: /lake\nsource: {type: change-log-folder, path: /in}\ntables: [{name: shop.orders}]\n"


class Case(NamedTuple):
    """remedies: by the words of the message that name it; the text of the configuration then."""

    refused: str
    remedies: Mapping[str, str]
    environment: Mapping[str, str] = {}


def source(*settings: str) -> str:
    return GOOD.replace(KAFKA, "".join(f"  {setting}\n" for setting in ("topics: [a, b]", *settings)))


def table(*settings: str, key: str = "primary_key: [id]") -> str:
    return GOOD.replace(TABLE, "".join(f"    {setting}\n" for setting in (key, *settings) if setting))


def tables(*settings: str, name: str = "shop.{table}") -> str:
    """An entry of many tables."""
    return GOOD.replace("shop.orders", f"'{name}'").replace(TABLE, "".join(f"    {setting}\n" for setting in settings))


CASES: Final[Mapping[str, Case]] = {
    "a name has a typo": Case(source("utnil: end"), {"Did you mean `until`": source("until: end")}),
    "a choice has a typo": Case(source("until: ends"), {"Did you mean `end`": source("until: end")}),
    "a choice is none": Case(
        source("until: noon"),
        {"Possible: end": source("until: end"), "forever": source("until: forever")},
    ),
    "a setting is missing": Case(GOOD.replace("warehouse: /lake\n", ""), {"Add `warehouse: …`": GOOD}),
    "a setting is given twice": Case(GOOD + "warehouse: /other\n", {"Keep one of them": GOOD}),
    "YAML takes a name for something else": Case(
        table(key="primary_key: [no]"), {"Put it in quotes": table(key="primary_key: ['no']")}
    ),
    "the text is no YAML": Case(GOOD.replace("[id]", "[id"), {"Close it": GOOD}),
    "no topic is named": Case(
        GOOD.replace(KAFKA, ""),
        {
            "Add `topics: […]`": GOOD,
            "or `topic_pattern: …`": GOOD.replace(KAFKA, "  topic_pattern: shop.*\n"),
        },
    ),
    "a pattern of topics is a glob": Case(
        GOOD.replace(KAFKA, "  topic_pattern: '*.orders'\n"),
        {"Example: `shop\\.public\\..*`": GOOD.replace(KAFKA, "  topic_pattern: 'shop\\.public\\..*'\n")},
    ),
    "two starts are named": Case(
        source("start: {timestamp_ms: 1, group: g}"),
        {
            "Set exactly one of timestamp_ms": source("start: {timestamp_ms: 1}"),
            "group": source("start: {group: g}"),
            "offsets": source("start: {offsets: {a: {0: 5}}}"),
        },
    ),
    "an address has a protocol": Case(
        GOOD.replace("broker:9092", "SSL://broker:9092"),
        {"Write `host:port`, and set the protocol with `security_protocol`": source("security_protocol: SSL")},
    ),
    "an address has no port that exists": Case(
        GOOD.replace("broker:9092", "broker:99999"), {"Example: `kafka:9092`": GOOD.replace("broker", "kafka")}
    ),
    "a login lacks its user": Case(
        source("security_protocol: SASL_SSL"),
        {"Add `sasl_plain_username`": source("security_protocol: SASL_SSL", "sasl_plain_username: etl")},
        {"TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD": "hunter2"},
    ),
    "a login lacks its token endpoint": Case(
        source("security_protocol: SASL_SSL", "sasl_mechanism: OAUTHBEARER"),
        {
            "Add `sasl_oauthbearer_token_endpoint_url` and `sasl_oauthbearer_client_id`": source(
                "security_protocol: SASL_SSL",
                "sasl_mechanism: OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url: https://login.example.com/oauth2/token",
                "sasl_oauthbearer_client_id: etl",
            )
        },
        {"TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2"},
    ),
    "a token endpoint is no URL": Case(
        source(
            "security_protocol: SASL_SSL",
            "sasl_mechanism: OAUTHBEARER",
            "sasl_oauthbearer_token_endpoint_url: login",
            "sasl_oauthbearer_client_id: etl",
        ),
        {
            "Example: `https://login.example.com/oauth2/token`": source(
                "security_protocol: SASL_SSL",
                "sasl_mechanism: OAUTHBEARER",
                "sasl_oauthbearer_token_endpoint_url: https://login.example.com/oauth2/token",
                "sasl_oauthbearer_client_id: etl",
            )
        },
        {"TIDELAKE_SOURCE__SASL_OAUTHBEARER_CLIENT_SECRET": "hunter2"},
    ),
    "MSK is reached in the clear": Case(
        source("security_protocol: SASL_PLAINTEXT", "sasl_mechanism: AWS_MSK_IAM", "aws_region: eu-west-1"),
        {
            "Write SASL_SSL": source(
                "security_protocol: SASL_SSL", "sasl_mechanism: AWS_MSK_IAM", "aws_region: eu-west-1"
            )
        },
    ),
    "MSK's region is unknown": Case(
        source("security_protocol: SASL_SSL", "sasl_mechanism: AWS_MSK_IAM"),
        {
            "Add `aws_region`": source(
                "security_protocol: SASL_SSL", "sasl_mechanism: AWS_MSK_IAM", "aws_region: eu-west-1"
            )
        },
    ),
    "certificates would not be used": Case(
        source("ssl_cafile: /etc/ca.pem"),
        {
            "Set `security_protocol` to SSL": source("security_protocol: SSL", "ssl_cafile: /etc/ca.pem"),
            "or leave it out": GOOD,
        },
    ),
    "a key has no certificate": Case(
        source("security_protocol: SSL", "ssl_keyfile: /etc/key.pem"),
        {
            "Add `ssl_certfile`": source(
                "security_protocol: SSL", "ssl_keyfile: /etc/key.pem", "ssl_certfile: /etc/cert.pem"
            )
        },
    ),
    "a folder is read that dead letters are written to": Case(
        FOLDER + "errors: {tolerance: all, dead_letters: 'file:///in'}\n",
        {"Name another folder": FOLDER + "errors: {tolerance: all, dead_letters: 'file:///bad'}\n"},
    ),
    "a name has no database": Case(GOOD.replace("shop.orders", "orders"), {"Write `database.table`": GOOD}),
    "a table is configured twice": Case(
        GOOD + "  - name: shop.orders\n    match: items\n",
        {"Write one entry per table; `match` may be a list": table("match: [orders, items]")},
    ),
    "the key lacks a partition column": Case(
        table("partition_by: [day]"),
        {
            "Add them to `primary_key`": table("partition_by: [day]", key="primary_key: [id, day]"),
            "or set `bucket: -1` in `options`": table("partition_by: [day]", "options: {bucket: -1}"),
        },
    ),
    "a type is none of SQL": Case(
        table("columns: {id: NUMBER}"), {"Write the type as in SQL": table("columns: {id: BIGINT}")}
    ),
    "one table has the options of many": Case(
        table("source_tables: {including_tables: 'o.*'}"),
        {
            "Put {table} into `name`": tables("source_tables: {including_tables: 'o.*'}"),
            "or leave it out": GOOD,
        },
    ),
    "many tables would have one name": Case(
        tables(name="shop.{database}"), {"Put {table} or {topic} into it": tables(name="shop.{topic}")}
    ),
    "a placeholder is in the database": Case(
        tables(name="{database}.{table}"), {"Write database.{table}": tables(name="database.{table}")}
    ),
    "columns are named for many tables": Case(
        tables("columns: {id: BIGINT}"),
        {
            "Write a separate entry for the table, before or after this one": (
                tables() + "  - name: shop.orders\n    columns: {id: BIGINT}\n"
            )
        },
    ),
    "tables are chosen by a glob": Case(
        tables("source_tables: {including_tables: '*'}"),
        {"Example: `orders|item.*`": tables("source_tables: {including_tables: 'orders|item.*'}")},
    ),
    "a mapping names a database": Case(
        tables("source_tables: {mapping: {a: shop.b}}"),
        {"Write the table part of a name, without the database": tables("source_tables: {mapping: {a: b}}")},
    ),
    "a prefix has no place": Case(
        tables("source_tables: {prefix_of_db: {x: a_}}", name="shop.{topic}"),
        {"Put {table} into `name`": tables("source_tables: {prefix_of_db: {x: a_}}")},
    ),
    "topics are divided by a glob": Case(
        tables("source_tables: {topic_parts: '*.orders'}"),
        {r"Example: `(?P<region>[a-z]+)\..*`": tables("source_tables: {topic_parts: '(?P<region>[a-z]+)\\..*'}")},
    ),
    "a part of the topic has the name of the table": Case(
        tables("source_tables: {topic_parts: '(?P<table>.*)'}"),
        {r"Example: `(?P<region>[a-z]+)\..*`": tables("source_tables: {topic_parts: '(?P<region>[a-z]+)\\..*'}")},
    ),
    "a history has a key": Case(table("mode: append"), {"Leave out `primary_key`": table("mode: append", key="")}),
    "versions are filtered": Case(
        table("mode: scd2\n    filter: n > 1"), {"Filter it when it is read": table("mode: scd2")}
    ),
    "versions have soft deletes": Case(
        table("mode: scd2\n    deletes: soft"), {"Leave out `deletes: soft`": table("mode: scd2")}
    ),
    "a mask has no salt": Case(
        table("masks: {email: hash}"), {"Set TIDELAKE_MASK_SALT": table("masks: {email: redact}")}
    ),
    "two columns get one name": Case(
        table("rename_columns: {a: c, b: c}"),
        {"choose another name for one of them": table("rename_columns: {a: c, b: d}")},
    ),
    "a table is paused without a quarantine": Case(
        table("masks: {email: redact}") + "  - name: shop.items\n    paused: true\n",
        {"or take the entry out of `tables`": table("masks: {email: redact}")},
    ),
}
REMEDIES: Final = [(about, words) for about, case in CASES.items() for words in case.remedies]


@pytest.mark.parametrize(("about", "words"), REMEDIES, ids=[f"{about}: {words}" for about, words in REMEDIES])
def test_a_configuration_is_accepted_with_the_remedy_of_its_message(about: str, words: str) -> None:
    case = CASES[about]
    with pytest.raises(ConfigError) as refused:
        parse_config(case.refused, "shop.yaml", (), case.environment, "shop")
    assert words in str(refused.value)
    parse_config(case.remedies[words], "shop.yaml", (), case.environment, "shop")
