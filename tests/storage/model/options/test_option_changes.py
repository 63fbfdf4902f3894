"""Which options a caller may override, and which names are refused, at every door."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import pyarrow as pa
import pytest

import tidelake
from tidelake.storage.model.options.option_changes import is_fixed_for_callers
from tidelake.storage.model.options.registry import TABLE_REGISTRY

COLUMNS: Final = pa.schema([("k", pa.int64()), ("j", pa.int64()), ("v", pa.int64())])
FIXED: Final = {option.key for option in TABLE_REGISTRY.options if is_fixed_for_callers(option)}
OVERRIDES: Final[Mapping[str, Mapping[str, str]]] = {
    "the bucket key": {"bucket-key": "k"},
    "the bucket function": {"bucket-function.type": "mod"},
    "the number of buckets": {"bucket": "7"},
    "the merge engine": {"merge-engine": "first-row"},
    "a function": {"fields.v.aggregate-function": "sum"},
    "the order of rows": {"sequence.field": "v"},
    "an older name": {"deduplicate.ignore-delete": "true"},
    "which levels are read": {"deletion-vectors.enabled": "true"},
    "the changelog": {"changelog-producer": "lookup"},
    "the key": {"primary-key": "k"},
    "the format of manifests": {"manifest.format": "orc"},
    "directories": {"partition.default-name": "none"},
}


@pytest.fixture(scope="module")
def catalog() -> tidelake.Catalog:
    catalog = tidelake.open_catalog("memory://option-changes/lake")
    catalog.create_database("shop")
    table = catalog.create_table("shop.t", COLUMNS, primary_key=["k", "j"], options={"bucket": "2"})
    with table.writer() as writer:
        writer.write(pa.table({"k": [1], "j": [2], "v": [3]}, COLUMNS))
        writer.commit()
    return catalog


@pytest.mark.parametrize("options", OVERRIDES.values(), ids=OVERRIDES)
def test_a_dynamic_option_does_not_override_what_rows_were_written_by(
    options: Mapping[str, str], catalog: tidelake.Catalog
) -> None:
    (key,) = options
    with pytest.raises(tidelake.BadInput, match=f"option {key} = .*a dynamic option can't override.*Leave it out"):
        catalog.table("shop.t", options)


def test_what_decides_buckets_keys_rows_and_files_is_in_the_list() -> None:
    assert {
        "bucket",
        "bucket-key",
        "merge-engine",
        "sequence.field",
        "primary-key",
        "data-file.path-directory",
    } <= FIXED
    assert not {"scan.snapshot-id", "write-only", "branch", "target-file-size", "consumer-id"} & FIXED


@pytest.mark.parametrize(
    "options", [{"bucket": "2"}, {"merge-engine": "Deduplicate"}, {"ignore-delete": "false"}, {"scan.snapshot-id": "1"}]
)
def test_the_same_value_in_other_words_and_options_of_one_read_are_accepted(
    options: Mapping[str, str], catalog: tidelake.Catalog
) -> None:
    assert len(catalog.table("shop.t", options).scan().to_arrow()) == 1


def create(catalog: tidelake.Catalog, key: str) -> None:
    catalog.create_table("shop.new", COLUMNS, options={key: "4"})


def alter(catalog: tidelake.Catalog, key: str) -> None:
    catalog.alter_table("shop.t", [tidelake.SetOption(key, "4")])


def open_table(catalog: tidelake.Catalog, key: str) -> None:
    catalog.table("shop.t", {key: "4"})


@pytest.mark.parametrize("door", [create, alter, open_table])
@pytest.mark.parametrize(
    ("key", "meant"),
    [("bukcet", "bucket"), ("scan.snapshot-idd", "scan.snapshot-id"), ("file.fromat", "file.format")],
)
def test_a_misspelt_option_is_refused_with_the_name_that_was_meant(
    door: Callable[[tidelake.Catalog, str], None], key: str, meant: str, catalog: tidelake.Catalog
) -> None:
    with pytest.raises(tidelake.BadInput, match=f"option {key}: Paimon has no .*; did you mean '{meant}'"):
        door(catalog, key)


def test_a_misspelt_option_of_a_column_is_refused_with_the_column(catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.BadInput, match=r"did you mean 'fields\.v\.aggregate-function'"):
        alter(catalog, "fields.v.agregate-function")


def test_a_property_of_another_program_is_stored(catalog: tidelake.Catalog) -> None:
    table = catalog.create_table("shop.owned", COLUMNS, options={"x-team": "orders"})
    assert table.options["x-team"] == "orders"


@pytest.mark.parametrize("producer", ["input", "lookup", "full-compaction"])
def test_the_changelog_producer_of_a_table_with_rows_stays(producer: str, catalog: tidelake.Catalog) -> None:
    with pytest.raises(tidelake.BadInput, match=r"changelog-producer can't change from none.*Create another table"):
        catalog.alter_table("shop.t", [tidelake.SetOption("changelog-producer", producer)])


LEVELS = [
    pytest.param("num-sorted-run.compaction-trigger", "5", True, id="a larger trigger, and the default follows it"),
    pytest.param("num-levels", "7", True, id="more levels"),
    pytest.param("num-sorted-run.compaction-trigger", "2", False, id="a smaller trigger"),
]


@pytest.mark.parametrize(("key", "value", "is_refused"), LEVELS)
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
def test_the_highest_level_does_not_rise_where_the_changelog_is_made_of_what_arrives_there(
    producer: str, key: str, value: str, is_refused: bool, catalog: tidelake.Catalog
) -> None:
    catalog.drop_table("shop.levels", if_exists=True)
    options = {"bucket": "1", "changelog-producer": producer, "num-sorted-run.compaction-trigger": "3"}
    catalog.create_table("shop.levels", COLUMNS, primary_key=["k"], options=options)
    catalog.table("shop.levels").upsert([{"k": 1, "v": 1}])
    catalog.table("shop.levels").compact(full=True)
    change = [tidelake.SetOption(key, value)]
    if is_refused and producer == "full-compaction":
        with pytest.raises(tidelake.BadInput, match=r"would announce all rows again\. Set 'num-levels' = '4' first"):
            catalog.alter_table("shop.levels", change)
        with pytest.raises(tidelake.BadInput, match="would announce all rows again"):
            catalog.table("shop.levels", {key: value})
        catalog.alter_table("shop.levels", [tidelake.SetOption("num-levels", "4")])
        change = [tidelake.SetOption("num-sorted-run.compaction-trigger", "5")]
    catalog.alter_table("shop.levels", change)
    before = catalog.table("shop.levels").snapshots()[-1].id
    catalog.table("shop.levels").compact(full=True)
    after = catalog.table("shop.levels").snapshots()[-1].id
    changes = catalog.table("shop.levels").changes(start=before + 1, end=after) if after > before else ()
    announced = [batch.rows.to_pylist() for batch in changes]
    assert not any(announced)
