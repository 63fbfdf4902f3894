"""The options of `open_catalog`."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import uuid4

import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.ddl.schema_changes import AddColumn
from tidelake.storage.model.types import STRING

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
LAKE = "memory://catalog-options/lake"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({"metastor": "filesystem"}, "no option 'metastor'; did you mean 'metastore'", id="a typo"),
        pytest.param({"lock-enabled": "true"}, "no option 'lock-enabled'; did you mean", id="another typo"),
        pytest.param({"bucket": "4"}, "or as table-default.bucket", id="an option of tables"),
        pytest.param({"table-default.bukket": "4"}, "no table option 'bukket'; did you mean 'bucket'", id="a default"),
        pytest.param({"lock.enabled": "true"}, "take no lock", id="a lock"),
        pytest.param({"lock.enabled": "yes"}, "neither true nor false", id="a lock, perhaps"),
        pytest.param({"cache.snapshot.max-num-per-table": "many"}, "whole number", id="no number"),
        pytest.param({"lock.type": "hive", "metastore": "jdbc"}, "each of its own type", id="another's locks"),
        pytest.param({"uri": "jdbc:sqlite:/c.db"}, "Set metastore = jdbc", id="an address for nobody"),
        pytest.param({"uri": "thrift://h?password=secret"}, "uri = thrift://h: ", id="a secret is not shown"),
        pytest.param({"warehouse": "/elsewhere"}, "name the warehouse once", id="another warehouse"),
    ],
)
def test_options_that_would_be_ignored_are_refused(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(tidelake.TidelakeError, match=message):
        open_catalog(LAKE, options)


def test_options_with_the_effective_value_are_accepted() -> None:
    options = {"metastore": "filesystem", "warehouse": LAKE, "lock.enabled": "false", "s3.endpoint": "http://store"}
    open_catalog(LAKE, options)


def test_new_tables_get_the_default_options_of_the_catalog_unless_overridden() -> None:
    defaults = {"table-default.file.format": "orc", "table-default.bucket": "3"}
    catalog = tidelake.open_catalog(LAKE, **defaults)
    catalog.create_database("shop", if_not_exists=True)
    table = catalog.create_table("shop.t", SCHEMA, primary_key=["id"], options={"bucket": "2"})
    assert dict(table.options) == {"file.format": "orc", "bucket": "2"}
    with table.writer() as writer:
        writer.write(pa.table({"id": [1]}, SCHEMA))
        writer.commit()
    assert {file.file_name.rpartition(".")[2] for split in table.scan().splits() for file in split.files} == {"orc"}
    plain = tidelake.open_catalog(LAKE)
    assert dict(plain.create_table("shop.u", SCHEMA, primary_key=["id"]).options) == {}
    assert dict(plain.table("shop.t").options) == {"file.format": "orc", "bucket": "2"}
    plain.drop_database("shop", cascade=True)


def test_an_invalid_table_default_refuses_every_new_table() -> None:
    catalog = tidelake.open_catalog(LAKE, **{"table-default.pk-btree.index.columns": "id"})
    catalog.create_database("shop", if_not_exists=True)
    with pytest.raises(tidelake.UnsupportedFeature, match=r"pk-btree\.index\.columns = id: cannot create"):
        catalog.create_table("shop.v", SCHEMA, primary_key=["id"])


@pytest.mark.parametrize("option", [{"case-sensitive": "false"}, {"allow-upper-case": "false"}], ids=str)
def test_a_case_insensitive_catalog_refuses_capital_letters(option: Mapping[str, str]) -> None:
    catalog = tidelake.open_catalog(f"memory://{uuid4()}/lake", **option)
    catalog.create_database("shop")
    catalog.create_table("shop.t", SCHEMA, primary_key=["id"])
    for act in (
        lambda: catalog.create_database("Shop"),
        lambda: catalog.create_table("shop.T", SCHEMA),
        lambda: catalog.create_table("shop.u", pa.schema([("Id", pa.int32())])),
        lambda: catalog.rename_table("shop.t", "shop.U"),
        lambda: catalog.alter_table("shop.t", [AddColumn("Note", STRING)]),
    ):
        with pytest.raises(
            tidelake.BadInput, match=r"upper-case letters, but the catalog accepts only lower case.*; write '"
        ):
            act()
    assert catalog.list_tables("shop") == ["t"]


@pytest.mark.parametrize("warehouse", ["/data/lake", "memory://x", "hdfs://n/x"])
def test_files_that_are_not_in_an_object_store_have_no_disk_cache(warehouse: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"cache\.directory for .*object stores"):
        open_catalog(warehouse, {"cache.directory": "/cache"})


def test_a_misspelt_option_of_the_disk_cache_is_refused_with_the_right_one() -> None:
    with pytest.raises(BadInput, match=r"cache\.directory"):
        open_catalog("s3://b/lake", {"cache.directry": "/cache"})


OTHER_SERVICES: dict[str, tuple[dict[str, str], str]] = {
    "AWS Glue": ({"metastore": "glue"}, "metastore = glue: catalogs can be in the file system"),
    "AWS Glue through Hive": (
        {
            "metastore": "hive",
            "uri": "thrift://h:9083",
            "metastore.client.class": "com.amazonaws.glue.catalog.metastore.AWSCatalogMetastoreClient",
        },
        "which AWS Glue does not speak",
    ),
    "Unity Catalog": ({"metastore": "unity"}, "metastore = unity: catalogs can be in the file system"),
    "DLF": ({"metastore": "rest", "uri": "http://h", "token.provider": "dlf"}, "only bearer tokens"),
    "MySQL": ({"metastore": "jdbc", "uri": "jdbc:mysql://h/db"}, "jdbc:mysql"),
}


@pytest.mark.parametrize(("options", "message"), OTHER_SERVICES.values(), ids=OTHER_SERVICES)
def test_services_that_only_java_reaches_are_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises(tidelake.TidelakeError, match=message):
        open_catalog("/lake", options)
