"""Options that a later operation refuses are refused when a table is created or altered. Existing tables of other
writers can be opened and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import uuid4

import pyarrow as pa
import pytest

from tests.support.foreign_tables import create_as_java
from tidelake.errors import UnsupportedFeature
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.catalog.opening import open_catalog
from tidelake.storage.ddl.schema_changes import AddColumn, RemoveOption, SetOption
from tidelake.storage.model.types import BYTES, DataField, parse_type

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])
KEY = ("id",)

# options, primary key, what the message says
UNSUPPORTED = [
    pytest.param({"pk-btree.index.columns": "v"}, KEY, "pk-btree.index.columns", id="an index of a primary-key table"),
    pytest.param({"data-file.external-paths": "s3://else"}, KEY, "data-file.external-paths", id="files elsewhere"),
    pytest.param({"blob-view-field": "v"}, (), "blob-view-field", id="references to blobs of other tables"),
    pytest.param({"metadata.iceberg.storage": "rest-catalog"}, KEY, "metadata.iceberg.storage", id="Iceberg"),
    pytest.param({"commit.callbacks": "org.example.Callback"}, KEY, "commit.callbacks", id="callbacks"),
    pytest.param({"fields.v.map.storage-layout": "shared-shredding"}, KEY, "map.storage-layout", id="shredded maps"),
    pytest.param({"branch": "dev"}, KEY, "branch = dev", id="another branch"),
]


@pytest.fixture
def catalog() -> FileSystemCatalog:
    catalog = open_catalog(f"memory://{uuid4().hex}/lake")
    assert isinstance(catalog, FileSystemCatalog)
    catalog.create_database("shop")
    return catalog


@pytest.mark.parametrize(("options", "primary_key", "message"), UNSUPPORTED)
def test_an_unsupported_table_is_not_created(
    options: Mapping[str, str], primary_key: Sequence[str], message: str, catalog: FileSystemCatalog
) -> None:
    with pytest.raises(UnsupportedFeature, match=rf"shop\.t: option .*{message}.*cannot create: ") as refused:
        catalog.create_table("shop.t", SCHEMA, primary_key=primary_key, options=options)
    assert refused.value.remedy
    assert catalog.list_tables("shop") == []


@pytest.mark.parametrize(("options", "primary_key", "message"), UNSUPPORTED)
def test_no_table_is_altered_into_an_unsupported_one(
    options: Mapping[str, str], primary_key: Sequence[str], message: str, catalog: FileSystemCatalog
) -> None:
    catalog.create_table("shop.t", SCHEMA, primary_key=primary_key)
    (option,) = options.items()
    with pytest.raises(UnsupportedFeature, match=rf"shop\.t: option .*{message}.*cannot alter: "):
        catalog.alter_table("shop.t", [SetOption(*option)])
    assert catalog.load("shop.t").schema.id == 0


@pytest.mark.parametrize(("options", "primary_key", "message"), UNSUPPORTED)
def test_an_unsupported_table_of_java_can_be_opened_altered_otherwise_and_dropped(
    options: Mapping[str, str], primary_key: Sequence[str], message: str, catalog: FileSystemCatalog
) -> None:
    create_as_java(catalog, "shop.t", SCHEMA, options, primary_key=primary_key)
    assert catalog.load("shop.t").schema.names == ("id", "v")
    catalog.alter_table("shop.t", [AddColumn("w", "INT"), SetOption("snapshot.num-retained.min", "3")])
    (key,) = options
    if key != "bucket":
        catalog.alter_table("shop.t", [RemoveOption(key)])
        assert key not in catalog.load("shop.t").options
    catalog.drop_table("shop.t")
    assert catalog.list_tables("shop") == []


def test_a_database_with_unsupported_tables_can_be_dropped(catalog: FileSystemCatalog) -> None:
    for number, case in enumerate(UNSUPPORTED):
        options, primary_key, _ = case.values
        create_as_java(catalog, f"shop.t{number}", SCHEMA, options, primary_key=primary_key)  # type: ignore[arg-type]
    catalog.drop_database("shop", cascade=True)
    assert catalog.list_databases() == []


def test_a_column_of_blobs_is_not_created(catalog: FileSystemCatalog) -> None:
    columns = [DataField(0, "id", BYTES), DataField(1, "photo", parse_type("BLOB"))]
    with pytest.raises(UnsupportedFeature, match="'photo' BLOB"):
        catalog.create_table("shop.t", columns)
