"""What a running pipeline takes of a changed configuration, and what it refuses by name."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.errors import ReloadRefused
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.config.config_changes import ConfigChanges, config_changes
from tidelake.ingest.settings import Config

BASE = """
pipeline: shop
warehouse: /lake
source: {type: kafka, bootstrap_servers: 'a:9092', topics: [s.a, s.b], group_id: g, sasl_plain_password: old}
mask_salt: pepper
tables: [{name: shop.a, filter: 'id > 1'}, {name: shop.b}]
"""


def config(*lines: str, without: str = "") -> Config:
    """The base, with lines that replace those of the same settings."""
    names = {line.partition(":")[0] for line in lines} | {without}
    kept = [line for line in BASE.strip().splitlines() if line.partition(":")[0] not in names]
    return parse_config("\n".join([*kept, *lines]), "shop.yaml", (), {}, "shop")


def source(**changes: str) -> str:
    given = {
        "type": "kafka",
        "bootstrap_servers": "'a:9092'",
        "topics": "[s.a, s.b]",
        "group_id": "g",
        "sasl_plain_password": "old",
    }
    return "source: {" + ", ".join(f"{name}: {value}" for name, value in {**given, **changes}.items()) + "}"


TAKEN: dict[str, tuple[list[str], dict[str, Any]]] = {
    "nothing": ([], {}),
    "the order of tables": (["tables: [{name: shop.b}, {name: shop.a, filter: 'id > 1'}]"], {}),
    "a default that is written": (["checkpoint: {interval_ms: 10000}"], {}),
    "a table more": (
        ["tables: [{name: shop.a, filter: 'id > 1'}, {name: shop.c}, {name: shop.b}]"],
        {"added": ["shop.c"]},
    ),
    "a table less": (["tables: [{name: shop.b}]"], {"removed": ["shop.a"]}),
    "another name": (
        ["tables: [{name: shop.a, filter: 'id > 1'}, {name: shop.é}]"],
        {"added": ["shop.é"], "removed": ["shop.b"]},
    ),
    "settings of a table": (
        ["tables: [{name: shop.a, filter: 'id > 2', masks: {m: redact}}, {name: shop.b, columns: {v: INT}}]"],
        {"changed": {"shop.a": ["masks", "filter"], "shop.b": ["columns"]}},
    ),
    "a setting that is left out": (
        ["tables: [{name: shop.a}, {name: shop.b}]"],
        {"changed": {"shop.a": ["filter"]}},
    ),
    "an entry of many tables": (
        ["tables: [{name: shop.a, filter: 'id > 1'}, {name: shop.b}, {name: 'shop.x_{table}'}]"],
        {"added": ["shop.x_{table}"]},
    ),
    "tolerance and freshness": (
        ["errors: {tolerance: 7}", "checkpoint: {interval_ms: 500, bytes_max: 9}"],
        {"settings": ["checkpoint.interval_ms", "checkpoint.bytes_max", "errors.tolerance"]},
    ),
    "limits": (
        ["quarantine: {bytes_max: 1, enabled: false}", "moved_rows: {keep_ms: 1}", "request_prices: {currency: EUR}"],
        {
            "settings": [
                "moved_rows.keep_ms",
                "quarantine.enabled",
                "quarantine.bytes_max",
                "request_prices.currency",
            ]
        },
    ),
    "schema changes and options of the format": (
        ["schema_evolution: {mode: ignore}", "format_options: {truncates: skip}"],
        {"settings": ["format_options", "schema_evolution"]},
    ),
    "topics": ([source(topics="[s.a, s.b, s.c]")], {"settings": ["source.topics"]}),
    "a pattern of topics": (
        [source(topics="[]", topic_pattern="'s[.].*'")],
        {"settings": ["source.topics", "source.topic_pattern"]},
    ),
    "where new tables start": (
        [source(start="{timestamp_ms: 5}")],
        {"settings": ["source.start"]},
    ),
}


@pytest.mark.parametrize("case", TAKEN)
def test_a_running_pipeline_takes(case: str) -> None:
    lines, expected = TAKEN[case]
    changes = config_changes(config(), config(*lines))
    assert changes == ConfigChanges(**expected)
    assert bool(changes) == bool(expected)
    changes.check()


REFUSED = {
    "brokers": ([source(bootstrap_servers="'b:9092'")], ["source.bootstrap_servers"]),
    "a group": ([source(group_id="h")], ["source.group_id"]),
    "a password": ([source(sasl_plain_password="new")], ["source.sasl_plain_password"]),
    "the end of reading": ([source(until="end")], ["source.until"]),
    "another source": (["source: {type: change-log-folder, path: /log}"], ["source"]),
    "a warehouse": (["warehouse: /other"], ["warehouse"]),
    "options of the warehouse": (["warehouse_options: {s3.secret-key: k}"], ["warehouse_options"]),
    "a name": (["pipeline: store"], ["pipeline"]),
    "a format": (["format: maxwell-json"], ["format"]),
    "a salt": (["mask_salt: salt"], ["mask_salt"]),
    "folders of kept records": (
        ["errors: {dead_letters: /letters}", "quarantine: {location: /waiting}"],
        ["errors.dead_letters", "quarantine.location"],
    ),
    "a table of dead letters": (["errors: {dead_letters: {table: shop.dead}}"], ["errors.dead_letters"]),
    "memory and folders of buffers": (
        ["write: {memory_bytes: 1, spill_directory: /spill}"],
        ["write.memory_bytes", "write.spill_directory"],
    ),
    "an endpoint": (["metrics: {port: 9404}"], ["metrics.port"]),
    "several beside ones that could be taken": (
        ["tables: [{name: shop.c}]", "errors: {tolerance: all}", "warehouse: /other", source(group_id="h")],
        ["warehouse", "source.group_id"],
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_running_pipeline_refuses_and_names_all_of(case: str) -> None:
    lines, expected = REFUSED[case]
    changes = config_changes(config(), config(*lines))
    assert changes.refused == expected
    with pytest.raises(ReloadRefused) as refused:
        changes.check()
    assert all(f"`{name}`" in str(refused.value) for name in expected)
    assert "new" not in str(refused.value).split("`")  # names of settings, never their values


def test_an_exception_within_a_section_does_not_refuse_the_rest_of_it() -> None:
    changes = config_changes(config(), config("errors: {tolerance: all, dead_letters: /letters}"))
    assert (changes.settings, changes.refused) == (["errors.tolerance"], ["errors.dead_letters"])


def test_changes_are_told_to_people_and_programs() -> None:
    changes = ConfigChanges(["shop.c"], ["shop.a"], {"shop.b": ["filter", "masks"]}, ["errors.tolerance"])
    assert changes.lines() == [
        "added: shop.c",
        "removed: shop.a",
        "changed: shop.b (filter, masks)",
        "changed: errors.tolerance",
    ]
    assert changes.document() == {
        "added": ["shop.c"],
        "removed": ["shop.a"],
        "changed": {"shop.b": ["filter", "masks"]},
        "settings": ["errors.tolerance"],
    }
