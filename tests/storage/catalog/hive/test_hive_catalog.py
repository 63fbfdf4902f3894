"""A catalog in a Hive metastore: the content of its entries, its files and its partitions."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pymetastore.hive_metastore import ttypes

import tidelake
from tests.support.command_line import Call
from tests.support.hive_metastore import HiveLake
from tests.support.java_oracle import JavaOracle
from tidelake.storage.catalog.hive.hive_catalog import HiveCatalog
from tidelake.storage.catalog.hive.metastore_address import MetastoreAddress
from tidelake.storage.catalog.hive.metastore_client import MetastoreClient
from tidelake.storage.catalog.hive.metastore_lock import MetastoreLocks
from tidelake.storage.catalog.identifier import Identifier
from tidelake.storage.catalog.opening import open_catalog

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
BY_DAY = pa.schema([*SCHEMA, pa.field("day", pa.string(), nullable=False)])
PARTITIONED = {"bucket": "1", "metastore.partitioned-table": "true"}


def asked(lake: HiveLake, call: Callable[[Any], Any]) -> Any:
    return MetastoreClient(MetastoreAddress.of(lake.options)).read(call)


def entry(lake: HiveLake, table: str) -> Any:
    return asked(lake, lambda c: c.get_table(lake.database, table))


def partitions(lake: HiveLake, table: str) -> list[str]:
    found: list[str] = asked(lake, lambda c: c.get_partition_names(lake.database, table, -1))
    return sorted(found)


@pytest.fixture
def lake(hive_lake: HiveLake) -> tidelake.Catalog:
    """With the test's database."""
    made = hive_lake.open()
    made.create_database(hive_lake.database)
    return made


def write(table: tidelake.Table, *days: str) -> None:
    with table.writer() as writer:
        numbers = list(range(len(days)))
        writer.write(pa.table({"id": numbers, "v": ["v"] * len(days), "day": days}, BY_DAY))
        writer.commit()


def test_a_table_is_created_altered_renamed_and_dropped(
    hive_lake: HiveLake, lake: tidelake.Catalog, call: Call
) -> None:
    lake.create_table(hive_lake.name("orders"), SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(tidelake.BadInput, match="already exists"):
        lake.create_table(hive_lake.name("orders"), SCHEMA)
    with pytest.raises(tidelake.BadInput, match="not empty: it holds orders"):
        lake.drop_database(hive_lake.database)
    lake.rename_table(hive_lake.name("orders"), hive_lake.name("old"))
    again = hive_lake.open()
    assert again.table(hive_lake.name("old")).location.endswith(f"{hive_lake.database}.db/old")
    given = [part for key, value in hive_lake.options.items() for part in ("--catalog-option", f"{key}={value}")]
    shown = call("table", "list", hive_lake.database, "-w", hive_lake.warehouse, *given)
    assert hive_lake.name("old") in shown.out
    again.drop_database(hive_lake.database, cascade=True)
    assert hive_lake.database not in again.list_databases()
    assert not Path(hive_lake.warehouse, f"{hive_lake.database}.db").exists()
    inner = open_catalog(hive_lake.warehouse, hive_lake.options)
    assert isinstance(pickle.loads(pickle.dumps(inner)), HiveCatalog)


def comparable(found: Any) -> Any:
    """An entry without what differs by time, place and name."""
    found.parameters.pop("transient_lastDdlTime", None)
    found.createTime = found.lastAccessTime = 0
    found.sd.location = found.sd.location.rpartition("/")[0]
    return found


@pytest.mark.parametrize(
    ("partition_keys", "options"),
    [
        pytest.param([], {"bucket": "2", "file.format": "orc"}, id="by bucket"),
        pytest.param(["day"], {"bucket": "1"}, id="partitions that the metastore doesn't know"),
        pytest.param(["day"], PARTITIONED, id="partitions of the metastore"),
    ],
)
def test_a_metastore_entry_equals_javas(
    partition_keys: list[str],
    options: dict[str, str],
    hive_lake: HiveLake,
    lake: tidelake.Catalog,
    java_with_hive: JavaOracle,
) -> None:
    types = ["BIGINT", "DECIMAL(10, 2)", "CHAR(3)", "VARCHAR(70000)", "TIME(3)", "TIMESTAMP(6)", "DATE", "BYTES"]
    nested = {"type": "ARRAY", "element": {"type": "MAP", "key": "STRING NOT NULL", "value": "DOUBLE"}}
    columns: list[dict[str, Any]] = [
        {"name": "day", "type": "STRING", "nullable": False, "comment": "of the order"},
        *({"name": f"c{n}", "type": t, "nullable": n > 0} for n, t in enumerate(types)),
        {"name": "nested", "type": nested},
    ]
    java_with_hive.create(
        hive_lake.of_java,
        hive_lake.name("java"),
        columns,
        primary_keys=["day", "c0"],
        partition_keys=partition_keys,
        options=options,
    )
    fields = lake.table(hive_lake.name("java")).context.schema.fields
    ours = lake.create_table(
        hive_lake.name("ours"), fields, primary_key=["day", "c0"], partition_by=partition_keys, options=options
    )
    assert ours.context.schema.fields == fields
    made, of_java = comparable(entry(hive_lake, "ours")), comparable(entry(hive_lake, "java"))
    of_java.tableName = made.tableName
    assert made == of_java


def test_catalog_options_change_metastore_entries(hive_lake: HiveLake, lake: tidelake.Catalog) -> None:
    options = {"file.format": "orc", "hive.owner": "me", "partition.expiration-time": "7 d"}
    few = hive_lake.open(**{"sync-all-properties": "false"})
    few.create_table(hive_lake.name("few"), BY_DAY, partition_by=["day"], options=options)
    found = entry(hive_lake, "few").parameters
    assert found.keys() >= {"owner", "partition.expiration-time", "table_type"}
    assert not {"file.format", "partition", "hive.owner"} & found.keys()
    apart = hive_lake.open(**{"location-in-properties": "true"})
    apart.create_table(hive_lake.name("apart"), SCHEMA)
    place = f"{hive_lake.warehouse}/{hive_lake.database}.db/apart"
    assert entry(hive_lake, "apart").parameters["paimon_location"] == place
    assert apart.table(hive_lake.name("apart")).location == place


def test_the_files_of_a_dropped_external_table_are_kept_and_can_be_registered_again(
    hive_lake: HiveLake, lake: tidelake.Catalog
) -> None:
    external = hive_lake.open(**{"table.type": "external"})
    table = external.create_table(hive_lake.name("t"), SCHEMA)
    with table.writer() as writer:
        writer.write(pa.table({"id": [1], "v": ["a"]}, SCHEMA))
        writer.commit()
    found = entry(hive_lake, "t")
    assert (found.tableType, found.parameters["EXTERNAL"]) == ("EXTERNAL_TABLE", "TRUE")
    lake.drop_table(hive_lake.name("t"))
    assert lake.list_tables(hive_lake.database) == []
    with pytest.raises(tidelake.BadInput, match="contains a table with another schema that is not in the metastore"):
        external.create_table(hive_lake.name("t"), BY_DAY)
    assert external.create_table(hive_lake.name("t"), SCHEMA).scan().to_arrow().num_rows == 1


def test_a_schema_change_updates_the_metastore_entry(hive_lake: HiveLake, lake: tidelake.Catalog) -> None:
    lake.create_table(hive_lake.name("t"), SCHEMA, options={"bucket": "-1"})
    lake.alter_table(hive_lake.name("t"), [tidelake.AddColumn("n", pa.int32()), tidelake.SetOption("comment", "x")])
    found = entry(hive_lake, "t")
    assert [(c.name, c.type) for c in found.sd.cols] == [("id", "bigint"), ("v", "string"), ("n", "int")]
    assert found.parameters["comment"] == "x"
    lake.alter_table(hive_lake.name("t"), [tidelake.RemoveOption("comment")])
    assert "comment" not in entry(hive_lake, "t").parameters


@pytest.mark.parametrize(("options", "is_updated"), [({}, True), ({"alter-table-cascade": "false"}, False)])
def test_a_schema_change_updates_partitions_of_the_metastore_unless_switched_off(
    hive_lake: HiveLake, lake: tidelake.Catalog, options: dict[str, str], is_updated: bool
) -> None:
    name = hive_lake.name("t")
    write(lake.create_table(name, BY_DAY, partition_by=["day"], options={**PARTITIONED, "bucket": "-1"}), "mon")
    hive_lake.open(**options).alter_table(name, [tidelake.AddColumn("n", pa.int32())])
    assert "n" in [column.name for column in entry(hive_lake, "t").sd.cols]
    (found,) = asked(hive_lake, lambda c: c.get_partitions(hive_lake.database, "t", -1))
    assert ("n" in [column.name for column in found.sd.cols]) is is_updated


@pytest.mark.parametrize(("options", "is_updated"), [({}, True), ({"hive.skip-update-stats": "true"}, False)])
def test_a_schema_change_updates_statistics_of_the_metastore_unless_switched_off(
    hive_lake: HiveLake, lake: tidelake.Catalog, options: dict[str, str], is_updated: bool
) -> None:
    name = hive_lake.name("t")
    lake.create_table(name, SCHEMA, options={"bucket": "-1"})
    without = entry(hive_lake, "t")
    del without.parameters["totalSize"]  # otherwise the metastore keeps the statistics that it has
    silently = ttypes.EnvironmentContext(properties={"DO_NOT_UPDATE_STATS": "true"})
    asked(hive_lake, lambda c: c.alter_table_with_environment_context(hive_lake.database, "t", without, silently))
    assert "totalSize" not in entry(hive_lake, "t").parameters
    hive_lake.open(**options).alter_table(name, [tidelake.SetOption("comment", "x")])
    assert ("totalSize" in entry(hive_lake, "t").parameters) is is_updated


def test_a_schema_change_refused_by_the_metastore_is_not_made(hive_lake: HiveLake, lake: tidelake.Catalog) -> None:
    """Hive compares columns by position: without `v`, a number is where a text was."""
    schema = pa.schema([*SCHEMA, ("n", pa.int32())])
    lake.create_table(hive_lake.name("t"), schema)
    with pytest.raises(tidelake.BadInput, match="refuses it: The following columns have types incompatible"):
        lake.alter_table(hive_lake.name("t"), [tidelake.DropColumn("v")])
    assert lake.table(hive_lake.name("t")).schema.names == ["id", "v", "n"]


def test_the_metastore_has_the_partitions_that_have_rows(
    hive_lake: HiveLake, lake: tidelake.Catalog, java_with_hive: JavaOracle
) -> None:
    table = lake.create_table(
        hive_lake.name("t"), BY_DAY, primary_key=["id", "day"], partition_by=["day"], options=PARTITIONED
    )
    write(table, "mon", "tue/1")
    java_with_hive.write(hive_lake.of_java, hive_lake.name("t"), [{"id": 1, "v": "j", "day": "wed"}])
    assert partitions(hive_lake, "t") == ["day=mon", "day=tue%2F1", "day=wed"]
    places = asked(hive_lake, lambda c: c.get_partitions(hive_lake.database, "t", -1))
    assert {p.sd.location.rpartition("/")[2] for p in places} == {"day=mon", "day=tue%2F1", "day=wed"}
    table.truncate(partition={"day": "mon"})
    assert partitions(hive_lake, "t") == ["day=tue%2F1", "day=wed"]
    directly = tidelake.open_catalog(hive_lake.warehouse).table(hive_lake.name("t"))
    with pytest.raises(tidelake.UnsupportedFeature, match="new partitions would be missing in the metastore"):
        write(directly, "thu")


def test_a_partition_missed_by_an_unavailable_metastore_is_added_by_the_next_commit(
    hive_lake: HiveLake, lake: tidelake.Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = lake.create_table(
        hive_lake.name("t"), BY_DAY, partition_by=["day"], options={**PARTITIONED, "bucket": "-1"}
    )
    away = hive_lake.open(**{"lock.enabled": "false"}).table(hive_lake.name("t"))

    def fail(*_: object) -> None:
        raise ConnectionError("away")

    with away.writer() as writer:
        writer.write(pa.table({"id": [1], "v": ["a"], "day": ["mon"]}, BY_DAY))
        with monkeypatch.context() as broken:
            broken.setattr(MetastoreClient, "read", fail)
            writer.commit()
        assert partitions(hive_lake, "t") == []
        writer.write(pa.table({"id": [2], "v": ["b"], "day": ["tue"]}, BY_DAY))
        writer.commit()
    assert partitions(hive_lake, "t") == ["day=mon", "day=tue"]
    assert table.scan().to_arrow().num_rows == 2


def test_tables_of_hive_in_other_formats_are_neither_listed_nor_dropped(
    hive_lake: HiveLake, lake: tidelake.Catalog
) -> None:
    lazy = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
    sd = ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(name="n", type="int")],
        inputFormat="org.apache.hadoop.mapred.SequenceFileInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveSequenceFileOutputFormat",
        serdeInfo=ttypes.SerDeInfo(serializationLib=lazy, parameters={}),
    )
    foreign = ttypes.Table(tableName="theirs", dbName=hive_lake.database, sd=sd, partitionKeys=[], parameters={})
    asked(hive_lake, lambda c: c.create_table(foreign))
    assert lake.list_tables(hive_lake.database) == []
    with pytest.raises(tidelake.BadInput, match="is a table of another kind"):
        lake.create_table(hive_lake.name("theirs"), SCHEMA)
    with pytest.raises(tidelake.BadInput, match="not Paimon tables: theirs; nothing was dropped"):
        lake.drop_database(hive_lake.database, cascade=True)


@pytest.mark.parametrize(("enabled", "listed"), [("true", ["pages"]), ("false", [])])
def test_tables_of_hive_in_known_formats_are_format_tables_unless_switched_off(
    enabled: str, listed: list[str], hive_lake: HiveLake, lake: tidelake.Catalog
) -> None:
    folder = f"{hive_lake.warehouse}/theirs"
    Path(folder, "day=1").mkdir(parents=True)
    Path(folder, "day=1", "000000_0").write_text("7\x01a\n8\x01\\N\n")
    sd = ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema("id", "bigint", None), ttypes.FieldSchema("page", "string", "a page")],
        location=folder,
        inputFormat="org.apache.hadoop.mapred.TextInputFormat",
        outputFormat="org.apache.hadoop.hive.ql.io.HiveIgnoreKeyTextOutputFormat",
        serdeInfo=ttypes.SerDeInfo(
            serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
        ),
    )
    keys = [ttypes.FieldSchema("day", "int", None)]
    name = hive_lake.name("pages")
    theirs = ttypes.Table(tableName="pages", dbName=hive_lake.database, sd=sd, partitionKeys=keys, parameters={})
    asked(hive_lake, lambda c: c.create_table(theirs))
    opened = hive_lake.open(**{"format-table.enabled": enabled})
    assert opened.list_tables(hive_lake.database) == listed
    if listed:
        rows = opened.table(name, {"csv.null-literal": "N"}).scan().to_arrow().to_pylist()
        assert rows == [{"id": 7, "page": "a", "day": 1}, {"id": 8, "page": None, "day": 1}]
        with pytest.raises(tidelake.BadInput, match="is a Hive table; drop it with Hive"):
            opened.drop_table(name)
    else:
        with pytest.raises(tidelake.BadInput):
            opened.table(name)
    with pytest.raises(tidelake.BadInput, match="contains tables that are not Paimon tables"):
        opened.drop_database(hive_lake.database, cascade=True)


def test_names_with_capital_letters_are_refused_unless_enabled(hive_lake: HiveLake, lake: tidelake.Catalog) -> None:
    for name, columns in ((hive_lake.name("Orders"), SCHEMA), (hive_lake.name("t"), pa.schema([("Id", pa.int32())]))):
        with pytest.raises(tidelake.BadInput, match="has upper-case letters"):
            lake.create_table(name, columns)
    free = hive_lake.open(**{"case-sensitive": "true"})
    free.create_table(hive_lake.name("t"), pa.schema([("Id", pa.int32())]))


def test_commits_and_changes_wait_for_the_lock(hive_lake: HiveLake, lake: tidelake.Catalog) -> None:
    table = lake.create_table(hive_lake.name("t"), SCHEMA)
    locks = MetastoreLocks(MetastoreClient(MetastoreAddress.of(hive_lake.options)), 50, 60_000)
    done: list[str] = []

    def commit() -> None:
        with table.writer() as writer:
            writer.write(pa.table({"id": [1], "v": ["a"]}, SCHEMA))
            writer.commit()
        done.append("committed")

    other = threading.Thread(target=commit)
    with locks.held(Identifier(hive_lake.database, "t")):
        other.start()
        other.join(1)
        assert done == []
        impatient = hive_lake.open(**{"lock-acquire-timeout": "100 ms"})
        with pytest.raises(tidelake.CommitConflict, match="other writers held its lock"):
            impatient.alter_table(hive_lake.name("t"), [tidelake.SetOption("file.format", "orc")])
    other.join()
    assert done == ["committed"]


def test_an_unavailable_metastore_is_named() -> None:
    away = tidelake.open_catalog("lake", metastore="hive", uri="thrift://127.0.0.1:1")
    with pytest.raises(ConnectionError, match=r"no Hive metastore could be reached: 127\.0\.0\.1:1"):
        away.list_databases()


# ---------------------------------------------------------------- made right after the files


def shown(lake: HiveLake, table: str) -> tuple[Any, ...]:
    """The members of an entry that are not times, identities or Hive's own numbers."""
    found = entry(lake, table)
    of_hive = {
        "transient_lastDdlTime",
        "numFiles",
        "totalSize",
        "last_modified_time",
        "last_modified_by",
        "bucketing_version",
    }
    parameters = {key: value for key, value in found.parameters.items() if key not in of_hive}
    storage = (found.sd.location, found.sd.inputFormat, found.sd.outputFormat, found.sd.serdeInfo.serializationLib)
    columns = [(column.name, column.type) for column in (*found.sd.cols, *found.partitionKeys)]
    return columns, storage, found.tableType, parameters


@pytest.fixture
def lost(hive_lake: HiveLake, lake: tidelake.Catalog) -> tidelake.Catalog:
    """A table with partitions, whose entry was dropped, and not its files."""
    table = lake.create_table(
        hive_lake.name("t"), BY_DAY, primary_key=["id", "day"], partition_by=["day"], options=PARTITIONED
    )
    write(table, "mon", "tue/1")
    lake.alter_table(hive_lake.name("t"), [tidelake.AddColumn("n", pa.int32())])
    asked(hive_lake, lambda c: c.drop_table(hive_lake.database, "t", False))
    assert lake.list_tables(hive_lake.database) == []
    return lake


def test_a_lost_entry_is_repaired_as_java_does(
    hive_lake: HiveLake, lost: tidelake.Catalog, java_with_hive: JavaOracle
) -> None:
    name = hive_lake.name("t")
    java_with_hive.command("repair", hive_lake.of_java, name)
    javas = shown(hive_lake, "t"), partitions(hive_lake, "t")
    del javas[0][-1]["path"]  # said twice: the entry has a place for it, which its own new tables use alone
    asked(hive_lake, lambda c: c.drop_table(hive_lake.database, "t", False))
    assert lost.repair(name) == [name]
    for mine, theirs in zip(shown(hive_lake, "t"), javas[0], strict=True):
        assert mine == theirs
    assert partitions(hive_lake, "t") == javas[1]
    assert javas[1] == ["day=mon", "day=tue%2F1"]
    assert lost.repair(name) == lost.repair(hive_lake.database) == []
    assert sorted(row["id"] for row in java_with_hive.read(hive_lake.of_java, name)) == [0, 1]


def test_a_repair_restores_databases_tables_columns_options_and_partitions(
    hive_lake: HiveLake, lost: tidelake.Catalog, call: Call
) -> None:
    asked(hive_lake, lambda c: c.drop_database(hive_lake.database, False, False))
    assert lost.repair() == [hive_lake.name("t")]
    changed = entry(hive_lake, "t")
    changed.parameters["metastore.partitioned-table"], changed.parameters["own"] = "false", "kept"
    changed.sd.cols = changed.sd.cols[:2]
    asked(hive_lake, lambda c: c.alter_table(hive_lake.database, "t", changed))
    asked(hive_lake, lambda c: c.drop_partition(hive_lake.database, "t", ["mon"], False))
    arguments = ["-w", hive_lake.warehouse, *(f"--catalog-option={k}={v}" for k, v in hive_lake.options.items())]
    repaired = call("catalog", "repair", hive_lake.database, *arguments, "--json")
    assert (repaired.code, repaired.document) == (0, {"repaired": [hive_lake.name("t")]})
    found = entry(hive_lake, "t")
    assert [column.name for column in found.sd.cols] == ["id", "v", "n"]
    assert (found.parameters["metastore.partitioned-table"], found.parameters["own"]) == ("true", "kept")
    assert partitions(hive_lake, "t") == ["day=mon", "day=tue%2F1"]


def test_unrepairable_tables_are_refused(hive_lake: HiveLake, lake: tidelake.Catalog, tmp_path: Path) -> None:
    with pytest.raises(tidelake.BadInput, match=r"no table .*\.nowhere"):
        lake.repair(hive_lake.name("nowhere"))
    with pytest.raises(tidelake.BadInput, match="no database 'nowhere'"):
        lake.repair("nowhere")
    with pytest.raises(tidelake.UnsupportedFeature, match="stores no table names"):
        tidelake.open_catalog(str(tmp_path)).repair()
