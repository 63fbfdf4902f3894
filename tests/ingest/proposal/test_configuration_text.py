"""The text of a proposed configuration: it has the settings and the reasons, and no secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.proposal.samples import change, proposed, sample
from tests.support.levels import examples
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.proposal.configuration_text import ProposedConfiguration, configuration_text, scalar
from tidelake.ingest.proposal.proposed_tables import ProposedTables
from tidelake.ingest.settings import Config

ID = {"id": 1}


def text_of(
    tables: ProposedTables,
    others: Mapping[str, Any] | None = None,
    *,
    path: str = "shop.yaml",
    format_: str = "debezium-json",
) -> str:
    topics = [topic for table in tables.tables for topic in table.topics]
    return configuration_text(
        ProposedConfiguration(path, "shop", "lake", ["localhost:9092"], topics, format_, tables, others or {}, 100)
    )


def config_of(text: str) -> Config:
    return parse_config(text, "shop.yaml", (), {})


@settings(max_examples=examples(300))
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_text_is_one_line_of_yaml_that_gives_it_back(text: str) -> None:
    written = scalar(text)
    assert "\n" not in written
    assert yaml.safe_load(f"{{a: [{written}], b: x}}") == {"a": [text], "b": "x"}
    assert yaml.safe_load(f"a: {written}  # comment") == {"a": text}


def test_the_text_is_the_configuration_of_its_tables() -> None:
    tables = proposed(
        sample("s1.orders", [(ID, change(schema="public"))]),
        sample("s2.orders", [(ID, change(schema="public"))]),
        sample("s.items", [(ID, change(schema="public", table="items"))]),
    )
    config = config_of(text_of(tables))
    assert (config.pipeline, config.warehouse, config.format) == ("shop", "lake", "debezium-json")
    assert config.source.topics == ["s1.orders", "s2.orders", "s.items"]  # type: ignore[union-attr]
    assert [(one.name, one.match, one.topics) for one in config.tables] == [
        ("shop.orders", "shop.public.orders", ["s1.orders", "s2.orders"]),
        ("shop.items", "shop.public.items", "s.items"),
    ]


def test_each_comment_says_what_was_seen() -> None:
    tables = proposed(
        sample("orders", [(ID, change({"id": 1, "n": 2}))]),
        sample("shop.new", []),
        sample("numbers", [(None, {"id": 1})]),
    )
    text = text_of(tables)
    for part in (
        "# 1 sampled record of the topic orders.",
        "# Columns: id, n.",
        "# Key: id, which the records name.",
        "# columns: {id: BIGINT, n: BIGINT}",
        "# - name: shop.new",
        "# numbers: its records look like json",
    ):
        assert part in text
    assert [table.name for table in config_of(text).tables] == ["shop.orders"]


def test_what_is_commented_out_is_valid_once_it_is_uncommented() -> None:
    tables = proposed(sample("orders", [(ID, change({"id": 1, "a, b": 2.5}))]), sample("shop.new", []))
    lines = text_of(tables).splitlines()
    starts = ("# columns:", "# options:", "# - name:", "#   match:")
    text = "\n".join(line.replace("# ", "", 1) if line.lstrip().startswith(starts) else line for line in lines)
    orders, new = config_of(text).tables
    assert orders.columns == {"id": "BIGINT", "a, b": "DOUBLE"}
    assert orders.raw_options == {"bucket": "4", "changelog-producer": "input"}
    assert (new.name, new.match) == ("shop.new", "shop.new")


@pytest.mark.parametrize(
    ("format_", "record", "words"),
    [
        ("json", {"id": 1}, "No key: each record adds a row"),
        ("debezium-json", change(), "No key: inserts add rows, and an update or a delete is refused"),
    ],
)
def test_a_table_without_a_key_is_explained(format_: str, record: Any, words: str) -> None:
    assert words in text_of(proposed(sample("t", [(None, record)]), format_=format_), format_=format_)


def test_secrets_are_not_written_and_their_variables_are_named() -> None:
    others = {
        "source": {"security_protocol": "SASL_SSL", "sasl_plain_username": "me", "sasl_plain_password": "hunter2"},
        "format_options": {"basic_auth_user_info": "me:hunter2"},
        "warehouse_options": {"s3.secret-key": "hunter2", "s3.region": "eu"},
        "checkpoint": {"interval_ms": "5000"},
    }
    text = text_of(proposed(sample("t", [(ID, change())])), others)
    assert "hunter2" not in text
    joined = " ".join(text.replace("#", " ").split())
    assert "Set the variable TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD." in joined
    assert "Set the variable TIDELAKE_FORMAT_OPTIONS__BASIC_AUTH_USER_INFO." in joined
    assert "Set the variable TIDELAKE_WAREHOUSE_OPTIONS, which replaces this section as a whole." in joined
    config = parse_config(text, "shop.yaml", (), {"TIDELAKE_SOURCE__SASL_PLAIN_PASSWORD": "hunter2"})
    assert config.source.security_protocol == "SASL_SSL"  # type: ignore[union-attr]
    assert (config.warehouse_options, config.checkpoint.interval_ms) == ({"s3.region": "eu"}, 5000)
    assert config.format_options == {}


def test_comments_can_not_be_left_by_odd_names() -> None:
    odd = "a\nwarehouse: evil\u2028\x1b[31m"
    text = text_of(proposed(sample("t", [({odd: 1}, change({odd: 1}, table="b\n  - x"))])), path="my shop.yaml")
    config = config_of(text)
    assert config.warehouse == "lake"
    assert "\x1b" not in text
    assert "'my shop.yaml'" in text
