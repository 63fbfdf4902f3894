"""The JSON schema accepts the configurations of the documentation, and refuses what a run refuses by name or type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml

from tidelake.errors import ConfigError
from tidelake.ingest.config.config import parse_config, shown
from tidelake.ingest.config.config_schema import _structs_in, config_schema
from tidelake.ingest.settings import Config, TableSettings
from tidelake.ingest.source_settings import KafkaSettings

TOP: Final = Path(__file__).parents[3]
PAGE: Final = (TOP / "docs" / "configuration.md").read_text("utf-8")
VALIDATOR: Final = jsonschema.Draft202012Validator(config_schema())
WHOLE: Final = """
warehouse: lake
source: {type: kafka, bootstrap_servers: 'a:9092', topics: [orders], start: {offsets: {orders: {0: 5}}}}
tables: [{name: shop.orders, options: {bucket: 4}, schema_evolution: {mode: evolve}}]
errors: {tolerance: all, dead_letters: {table: shop.bad}}
"""


def shipped() -> Iterator[tuple[str, Any]]:
    """Each configuration in a page, an example or a manifest, and where it is."""
    for page in [TOP / "README.md", *sorted((TOP / "docs").glob("*.md"))]:
        for number, block in enumerate(re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)):
            yield from configurations(f"{page.name}:{number}", block)
    for folder in ("docker", "deploy/kubernetes", "examples"):
        for path in sorted((TOP / folder).rglob("*.yaml")):
            yield from configurations(path.name, path.read_text("utf-8"))


def configurations(name: str, text: str) -> Iterator[tuple[str, Any]]:
    try:
        documents = list(yaml.safe_load_all(text))
    except yaml.YAMLError:
        return
    for document in documents:
        if isinstance(document, dict) and {"source", "tables", "warehouse"} <= document.keys():
            yield name, document
        elif isinstance(document, dict) and document.get("kind") == "ConfigMap":
            for file, inner in document["data"].items():
                yield from configurations(f"{name}:{file}", inner)


SHIPPED: Final = list(shipped())


def test_configurations_of_pages_and_manifests_are_found() -> None:
    names = {name.partition(":")[0] for name, _ in SHIPPED}
    assert {"README.md", "tidelake.yaml", "configuration.md"} <= names


@pytest.mark.parametrize(("name", "configuration"), SHIPPED, ids=[name for name, _ in SHIPPED])
def test_the_schema_accepts_each_of_them(name: str, configuration: Any) -> None:
    assert [error.message for error in VALIDATOR.iter_errors(configuration)] == [], name


def test_the_schema_is_one_of_the_dialect_it_names() -> None:
    jsonschema.Draft202012Validator.check_schema(config_schema())


def test_every_setting_is_explained() -> None:
    unexplained = [
        f"{name}.{setting}"
        for name, definition in config_schema()["$defs"].items()
        for setting, described in definition["properties"].items()
        if setting != "type" and not setting.startswith("errors.") and not described.get("description")
    ]
    # The names of Kafka Connect below `errors`, which mean no setting.
    assert unexplained == [
        "ErrorSettings.log.enable",
        "ErrorSettings.deadletterqueue.context.headers.enable",
        "ErrorSettings.retry.timeout",
    ]


def test_no_part_of_a_configuration_takes_a_setting_that_it_does_not_know() -> None:
    """So any misspelt setting is refused, by editors and by a run."""
    assert [
        name for name, part in config_schema()["$defs"].items() if part.get("additionalProperties") is not False
    ] == []
    assert [kind.__name__ for kind in _structs_in(Config) if not kind.__struct_config__.forbid_unknown_fields] == []


SETTINGS: Final = [
    (kind.__name__, setting)
    for kind in sorted(_structs_in(Config), key=lambda kind: kind.__name__)
    for setting in kind.__struct_encode_fields__
]


@pytest.mark.parametrize(("part", "setting"), SETTINGS, ids=[f"{part}.{setting}" for part, setting in SETTINGS])
def test_each_setting_is_in_the_schema_and_on_its_page(part: str, setting: str) -> None:
    assert setting in config_schema()["$defs"][part]["properties"]
    assert re.search(rf"[`.]{re.escape(setting)}`", PAGE), "run `python docs/generate.py`"


def test_plan_shows_each_setting_of_a_pipeline_and_of_a_table() -> None:
    """`ingest plan --json` has them, also those that have their default."""
    planned = shown(parse_config(WHOLE, "shop.yaml", pipeline="shop"))
    assert planned.keys() == set(Config.__struct_encode_fields__)
    assert planned["tables"][0].keys() == set(TableSettings.__struct_encode_fields__)
    assert planned["source"].keys() == {"type", *KafkaSettings.__struct_encode_fields__}


@pytest.mark.parametrize(
    ("written", "instead"),
    [
        ("warehouse: lake", "warehouse: lake\nwarehose: x"),
        ("topics:", "topic:"),
        ("bootstrap_servers", "bootstrap.servers"),
        ("type: kafka", "type: kafak"),
        ("offsets:", "offset:"),
        ("0: 5", "0: -5"),
        ("options:", "option:"),
        ("name: shop.orders", "name: orders"),
        ("mode: evolve", "mode: evolved"),
        ("tolerance: all", "tolerance: some"),
        ("tolerance: all", "log.enable: false"),
        ("tolerance: all", "retry.timeout: 5"),
        ("table: shop.bad", "tabel: shop.bad"),
        ("bucket: 4", "bucket: [4]"),
    ],
)
def test_the_schema_refuses_what_a_run_refuses(written: str, instead: str) -> None:
    text = WHOLE.replace(written, instead)
    assert text != WHOLE
    with pytest.raises(ConfigError):
        parse_config(text, "shop.yaml", pipeline="shop")
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


@pytest.mark.parametrize(
    "more",
    [
        "",
        "pipeline: other",
        "errors.tolerance: none",
        "errors.retry.timeout: 0",
        "mask_salt: s",
        "write: {memory_bytes: 100000000}",
        "format: canal-json",
    ],
)
def test_the_schema_accepts_what_a_run_accepts(more: str) -> None:
    text = (WHOLE if "tolerance" not in more else WHOLE.replace("tolerance: all, ", "")) + more
    parse_config(text, "shop.yaml", pipeline="shop")
    given = {str(key): value for key, value in yaml.safe_load(text).items()}
    assert [error.message for error in VALIDATOR.iter_errors(given)] == []


NAMED_BY_USERS: Final = frozenset({"options", "warehouse_options", "columns", "masks", "rename_columns", "offsets"})


def misspelt(value: Any, free: bool = False) -> Iterator[tuple[str, Any]]:
    """Each setting in a configuration with one letter too many, and the configuration with it.

    free: the keys are names that users choose (options, columns).
    """
    if isinstance(value, dict):
        for key, inner in value.items():
            if not free:
                yield str(key), {f"{name}x" if name == key else name: one for name, one in value.items()}
            for name, changed in misspelt(inner, str(key) in NAMED_BY_USERS):
                yield f"{key}.{name}", {**value, key: changed}
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            for name, changed in misspelt(inner):
                yield f"{number}.{name}", [*value[:number], changed, *value[number + 1 :]]


@pytest.mark.parametrize(("name", "configuration"), SHIPPED, ids=[name for name, _ in SHIPPED])
def test_each_setting_of_a_page_is_refused_if_it_is_misspelt(name: str, configuration: Any) -> None:
    cases = list(misspelt(configuration))
    assert cases
    assert [setting for setting, changed in cases if VALIDATOR.is_valid(changed)] == [], name
