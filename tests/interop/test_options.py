"""The registry contains all options that Java's classes declare, with Java's types, defaults and fallback names."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.support.java_oracle import JavaOracle
from tidelake.storage.model.options.option import Option
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, TABLE_REGISTRY, OptionRegistry
from tidelake.storage.model.options.values import parse_duration_ms, parse_size_bytes

KINDS: Final = {
    "Boolean": {"boolean"},
    "Integer": {"int"},
    "Long": {"long"},
    "Double": {"number"},
    "Float": {"number"},
    "MemorySize": {"size"},
    "Duration": {"duration"},
    "Map": {"map"},
    "String": {"text", "word", "columns"},
}
# Java's class calls it a number; what acts is Parquet's own switch of that name, which takes true and false.
OTHER_KIND: Final = {
    "parquet.enable.dictionary": "boolean",
    "partition.expiration-strategy": "values-time, update-time",  # Java's may name a class
}
OF_CATALOGS: Final = {
    "CatalogOptions",
    "FlinkCatalogOptions",
    "HiveCatalogOptions",
    "JdbcCatalogOptions",
    "PrivilegedCatalog",
    "RESTCatalogInternalOptions",
    "RESTCatalogOptions",
}


@pytest.fixture(scope="module")
def declared(java_oracle: JavaOracle) -> list[dict[str, Any]]:
    return java_oracle.options()


def registry_of(option: dict[str, Any]) -> OptionRegistry:
    return CATALOG_REGISTRY if option["class"] in OF_CATALOGS else TABLE_REGISTRY


def found(option: dict[str, Any]) -> Option | None:
    return registry_of(option).find(option["key"].replace("#", "org.example.Callback"))


def test_every_option_of_java_is_registered(declared: list[dict[str, Any]]) -> None:
    assert len(declared) > 500
    without = [
        option["key"]
        for option in declared
        if (entry := found(option)) is None or option["key"] not in (entry.key, entry.key.replace("<class>", "#"))
    ]
    assert without == []


def test_option_types_equal_those_of_java(declared: list[dict[str, Any]]) -> None:
    different = []
    for option in declared:
        entry = found(option)
        assert entry is not None
        if option["type"] == "Enum":
            fits = {word.lower() for word in option["words"]} <= set(entry.kind.words)
        else:
            fits = entry.kind.name in KINDS[option["type"]] or OTHER_KIND.get(option["key"]) == entry.kind.name
        if not fits:
            different.append((option["key"], option["type"], entry.kind.name))
    assert different == []


def test_option_defaults_equal_those_of_java(declared: list[dict[str, Any]]) -> None:
    different = []
    for option in declared:
        entry = found(option)
        assert entry is not None
        if _value(option["type"], option.get("default")) != _value(option["type"], entry.default):
            different.append((option["key"], option.get("default"), entry.default))
    assert different == []


def _value(kind: str, text: str | None) -> object:
    match kind:
        case "Map":
            return None if text in (None, "{}") else text
        case "Duration" if text is not None:
            return parse_duration_ms(text)
        case "MemorySize" if text is not None:
            return parse_size_bytes(text)
        case "Enum" if text is not None:
            return text.lower()
        case _:
            return text


def test_fallback_names_refer_to_the_same_option(declared: list[dict[str, Any]]) -> None:
    own = {option["key"] for option in declared}
    for option in declared:
        for key in option["fallbacks"]:
            entry = registry_of(option).find(key)
            assert entry is not None, key
            # a key that two options fall back to, or that is one itself, leads to the first
            assert key in entry.fallbacks or key in own


def test_immutable_options_equal_those_of_java(declared: list[dict[str, Any]]) -> None:
    different = []
    for option in declared:
        entry = found(option)
        assert entry is not None
        if entry.immutable != option["immutable"]:
            different.append(option["key"])
    assert different == []
