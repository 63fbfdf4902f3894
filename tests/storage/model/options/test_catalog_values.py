"""Values of catalog options: the registry is the only place of their defaults."""

from __future__ import annotations

from typing import Any

import pytest

from tidelake.errors import BadInput
from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.options.option import OPEN, supported
from tidelake.storage.model.options.option_value import OptionValue
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, OptionRegistry
from tidelake.storage.model.options.values import INT

_VALUES = [value for value in vars(CatalogValues).values() if isinstance(value, OptionValue)]


@pytest.mark.parametrize("value", [pytest.param(value, id=value.key) for value in _VALUES])
def test_an_unset_value_is_the_default_of_the_registry(value: OptionValue[Any]) -> None:
    option = CATALOG_REGISTRY.find(value.key)
    assert option is value.option
    otherwise = option.kind.unset if option.default is None else option.kind.parse(option.default)
    assert value.__get__(CatalogValues({}), CatalogValues) == otherwise


def test_a_changed_registry_default_changes_the_value() -> None:
    class Other(BaseOptions):
        registry = OptionRegistry([supported("client-pool-size", INT, "7", OPEN)])
        pool_size = OptionValue[int]("client-pool-size")

    assert (Other({}).pool_size, CatalogValues({}).client_pool_size) == (7, 2)


def test_an_invalid_value_raises_with_the_option_name() -> None:
    with pytest.raises(BadInput, match="catalog option client-pool-size = 'two': expected a whole number"):
        _ = CatalogValues({"client-pool-size": "two"}).client_pool_size


@pytest.mark.parametrize(
    ("options", "takes"),
    [
        ({}, True),
        ({"metastore": " Hive "}, False),
        ({"metastore": "hive", "allow-upper-case": "true"}, True),
        ({"case-sensitive": "false", "allow-upper-case": "true"}, False),
    ],
)
def test_upper_case_is_accepted_unless_the_metastore_is_hive(options: dict[str, str], takes: bool) -> None:
    assert CatalogValues(options).is_case_sensitive is takes


@pytest.mark.parametrize(
    ("options", "in_store", "has"),
    [
        ({}, True, True),
        ({}, False, False),
        ({"lock.enabled": "true"}, False, True),
        ({"lock.enabled": "false"}, True, False),
    ],
)
def test_commits_take_a_lock_on_object_stores_or_if_enabled(options: dict[str, str], in_store: bool, has: bool) -> None:
    assert CatalogValues(options).has_locks(is_object_store=in_store) is has
