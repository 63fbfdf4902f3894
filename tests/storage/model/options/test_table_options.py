"""Option values that are derived from other options."""

from __future__ import annotations

from types import NoneType
from typing import get_args

import pytest

from tests.support.cases import Case, case_id, check_members, options_of, vectors
from tidelake.storage.model.options import ChangelogProducer, MergeEngine, TableOptions
from tidelake.storage.model.options.option_value import EnumValue, OptionValue
from tidelake.storage.model.options.registry import TABLE_REGISTRY


@pytest.mark.parametrize("case", vectors("option_derivation"), ids=case_id)
def test_option_derivation(case: Case) -> None:
    check_members(case, {"options", "expect"})
    options = TableOptions(options_of(case))
    expected = case["expect"]
    if "sort-spill-threshold" not in case["options"]:
        expected = expected | {"sort_spill_threshold": None}  # Java's default is for its heap, and has no effect here
    derived = {
        "num_levels": options.num_levels,
        "stop_trigger": options.stop_trigger,
        "sort_spill_threshold": options.sort_spill_threshold,
        "compaction_file_size": options.compaction_file_size_bytes(has_primary_key=True),
        "lookup_compact_max_interval": options.lookup_compact_max_interval,
        "wait_in_flush_when_runs_exceed": options.stop_trigger,
        "wait_in_prepare_commit_when_runs_exceed": options.stop_trigger + 1,
    }
    check_members(expected, derived)
    assert {name: derived[name] for name in expected} == expected


def test_options_of_an_existing_table_are_read_in_any_spelling() -> None:
    """New ones are held to Java's: test_schema_creation.py."""
    options = TableOptions(
        {
            "merge-engine": " First_Row",
            "changelog-producer": "full_compaction",
            "write-only": "TRUE ",
            "num-levels": " 3",
        }
    )
    assert options.merge_engine is MergeEngine.FIRST_ROW
    assert options.changelog_producer is ChangelogProducer.FULL_COMPACTION
    assert options.write_only
    assert options.num_levels == 3


class _Asked(dict[str, str]):
    """Holds nothing, and keeps what was looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[object] = set()

    def __contains__(self, name: object) -> bool:
        self.names.add(name)
        return False

    def __missing__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)


def test_options_that_act_are_checked_at_creation() -> None:
    options, asked = TableOptions({}), _Asked()
    options._values = asked
    for name in dir(TableOptions):
        if isinstance(getattr(TableOptions, name), property | OptionValue):
            getattr(options, name)
    assert {"merge-engine", "num-levels", "snapshot.num-retained.min"} < asked.names <= TABLE_REGISTRY.keys.keys()


_TYPES: dict[str, object] = {
    "boolean": bool, "int": int, "long": int, "number": float, "size": int, "duration": int,
    "columns": tuple[str, ...], "word": str, "text": str,
}  # fmt: skip
_VALUES = {name: value for name in dir(TableOptions) if isinstance(value := getattr(TableOptions, name), OptionValue)}


@pytest.mark.parametrize("name", _VALUES)
def test_an_option_has_the_type_and_default_of_the_registry(name: str) -> None:
    value = _VALUES[name]
    default = getattr(TableOptions({}), name)
    if isinstance(value, EnumValue):
        assert default == value.option.default
        return
    declared = get_args(vars(value)["__orig_class__"])[0]
    is_optional = NoneType in get_args(declared)
    assert (default is None) == is_optional
    if value.option.in_effect is not None:
        assert default == value.option.kind.parse(value.option.in_effect)
    if value.key not in _RICHER_THAN_THEIR_TYPE:
        base = next(iter(set(get_args(declared)) - {NoneType})) if is_optional else declared
        assert base == _TYPES.get(value.option.kind.name, str)


# Texts that hold two numbers, times or names.
_RICHER_THAN_THEIR_TYPE = {
    "changelog-producer.row-deduplicate-ignore-fields",
    "incremental-between",
    "incremental-between-timestamp",
}
