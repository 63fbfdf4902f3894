"""A configuration that contradicts an existing table: each difference is shown, and refused or not by its severity."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput
from tidelake.ingest.settings import TableSettings
from tidelake.ingest.tables.table_differences import check_differences, differences
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.model.options.registry import TABLE_REGISTRY

IMMUTABLE = {option.key for option in TABLE_REGISTRY.options if option.immutable}
COLUMNS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("n", pa.int64())])


@dataclass(frozen=True)
class Case:
    id: str
    configured: dict[str, Any]
    refused: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    table: dict[str, Any] = field(default_factory=dict)


CASES = [
    Case("nothing said", {}),
    Case("the same said", {"primary_key": ["day", "id"], "partition_by": ["day"], "options": {"bucket": 2}}),
    Case("another key", {"primary_key": ["id"]}, ("primary_key",)),
    Case("the key in another order", {"primary_key": ["id", "day"]}, (), ("primary_key",)),
    Case("other partitions", {"partition_by": ["id"]}, ("partition_by",)),
    Case("other buckets", {"options": {"bucket": 4}}, ("options: bucket",)),
    Case("another engine", {"options": {"merge-engine": "aggregation"}}, ("options: merge-engine",)),
    Case("the engine that it has unsaid", {"options": {"merge-engine": "deduplicate"}}),
    Case("another changelog", {"options": {"changelog-producer": "input"}}, ("options: changelog-producer",)),
    Case("another order of rows", {"options": {"sequence.field": "n"}}, ("options: sequence.field",)),
    Case("an aggregate", {"options": {"fields.n.ignore-retract": "true"}}, ("options: fields.n.ignore-retract",)),
    Case("another size of buffer", {"options": {"write-buffer-size": "8 mb"}}, (), ("options: write-buffer-size",)),
    Case(
        "a size in other words",
        {"options": {"write-buffer-size": "8 mb"}},
        table={"options": {"bucket": "2", "write-buffer-size": "8192kb"}},
    ),
    Case(
        "an option under its older name",
        {"options": {"write-only": True}},
        table={"options": {"bucket": "2", "write.compaction-skip": "true"}},
    ),
    Case("what is off anyway", {"options": {"write-only": False}}),
]


def create(path: Path, **arguments: Any) -> None:
    catalog = tidelake.open_catalog(str(path / "lake"))
    catalog.create_database("shop", if_not_exists=True)
    given = {"primary_key": ["day", "id"], "partition_by": ["day"], "options": {"bucket": "2"}} | arguments
    catalog.create_table("shop.t", COLUMNS, **given)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_each_difference_has_its_severity(case: Case, tmp_path: Path) -> None:
    create(tmp_path, **case.table)
    context = open_catalog(str(tmp_path / "lake")).load("shop.t")
    found = differences(TableSettings(name="shop.t", **case.configured), context)
    assert tuple(difference.setting for difference in found if difference.is_refused) == case.refused
    assert tuple(difference.setting for difference in found if not difference.is_refused) == case.warned
    if case.refused:
        with pytest.raises(BadInput, match=re.escape(str(found[0]))):
            check_differences(found)
    else:
        check_differences(found)


def test_the_message_has_what_to_write_and_the_command_that_changes_the_table_instead(tmp_path: Path) -> None:
    create(tmp_path)
    context = open_catalog(str(tmp_path / "lake")).load("shop.t")
    options: dict[str, str | int | float | bool] = {"bucket": 4, "merge-engine": "aggregation"}
    settings = TableSettings(name="shop.t", primary_key=["day", "n"], options=options)
    with pytest.raises(BadInput) as refused:
        check_differences(differences(settings, context))
    lines = str(refused.value).splitlines()
    assert lines[1].endswith("but (day, id) in the table. Write `primary_key: [day, id]`")
    assert lines[2].endswith("but '2' in the table. Write `options: {bucket: '2'}`")
    assert lines[3].endswith("but not set in the table. Leave it out")
    command = "tidelake table rewrite shop.t -w \\S+ --primary-key day,n --set bucket=4 --set merge-engine=aggregation"
    assert re.search(f"or rewrite the table: `{command}`$", lines[-1])
    with pytest.raises(BadInput, match=r"configure another name$"):  # nothing changes the partitions
        check_differences(differences(TableSettings(name="shop.t", partition_by=["id"]), context))


@pytest.mark.parametrize("key", sorted(IMMUTABLE - {"primary-key", "partition", "type"}))
def test_no_option_that_affects_files_is_only_a_warning(key: str, tmp_path: Path) -> None:
    create(tmp_path)
    context = open_catalog(str(tmp_path / "lake")).load("shop.t")
    [found] = differences(TableSettings(name="shop.t", options={key: "17"}), context)
    assert found.is_refused
