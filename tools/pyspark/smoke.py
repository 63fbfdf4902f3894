"""What is promised of Spark, once each, under whatever PySpark runs this; one line of JSON says how each step ended.

    PYTHONPATH=<the repository, and metadata of this package> <python with a PySpark> smoke.py classic|connect FOLDER

Names of steps after the folder leave out the others. A step is "done", or how its error begins and ends.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

import tidelake
from tidelake.ingest.config.config import parse_config
from tidelake.spark import MetricsListener, catalog, delete, merge, procedures, read, register, sink, update, write

_NOT_FOUND = "DATA_SOURCE_NOT_FOUND"
SCHEMA = pa.schema([pa.field("id", pa.int64(), False), ("name", pa.string())])


class Smoke:
    def __init__(self, spark: SparkSession, home: Path) -> None:
        self._spark = spark
        self._home = home
        self._lake = str(home / "lake")
        self._catalog = tidelake.open_catalog(self._lake)
        self._catalog.create_database("shop")
        for name in ("keyed", "raw", "streamed", "counted", "measured"):
            self._catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"], options={"bucket": "2"})
        for name in ("log", "appended"):
            self._catalog.create_table(f"shop.{name}", SCHEMA)

    def steps(self) -> dict[str, Callable[[], object]]:
        return {
            "register": lambda: register(self._spark),
            "write": self._write,
            "read": self._read,
            "append": self._append,
            "sink of typed rows": self._sink,
            "sink of change records": self._records,
            "replay of a batch with state": self._state,
            "stream of changes": self._changes,
            "append of a stream": self._append_stream,
            "metrics": self._metrics,
            "delete, update, merge": self._row_changes,
            "compact": lambda: procedures.compact(self._spark, "shop.keyed", self._lake),
            "read natively": self._read_natively,
            "views of a lake": self._views,
            "spark run": self._run,
        }

    def _write(self) -> None:
        write(
            self._spark.createDataFrame([(n, f"n{n}") for n in range(10)], "id long, name string"),
            "shop.keyed",
            self._lake,
        )
        self._expect("keyed", [(n, f"n{n}") for n in range(10)])

    def _read(self) -> None:
        rows = self._reader(self._spark.read, "keyed").load().where("id < 3").orderBy("id").collect()
        assert [tuple(row) for row in rows] == [(n, f"n{n}") for n in range(3)], rows

    def _read_natively(self) -> None:
        """After the compaction, so that Spark's own reader has something to do; on Connect it has not."""
        rows = read(self._spark, "shop.keyed", self._lake, columns=["name", "id"])
        assert sorted(tuple(row) for row in rows.where("id < 2").collect()) == [("N1", 1), ("x", 0)], rows.collect()
        if isinstance(self._spark, SparkSession):
            assert rows.inputFiles(), "no file is read by Spark's own reader"

    def _views(self) -> None:
        views = catalog(self._spark, self._lake, tables="shop.*e*", names={"shop.keyed": "keyed-rows"})
        joined = "SELECT k.name FROM `keyed-rows` k JOIN shop_streamed s ON k.id = s.id"
        assert [row.name for row in self._spark.sql(joined).collect()] == ["N1"], views.views
        self._catalog.create_table("shop.later", SCHEMA)
        assert views.refresh() == ["shop_later"], views.failures
        assert self._spark.table("shop_later").count() == 0
        views.drop()
        assert not self._spark.catalog.tableExists("`keyed-rows`")

    def _append(self) -> None:
        rows = self._spark.createDataFrame([(1, "a"), (2, "b")], "id long, name string")
        self._reader(rows.write, "log").mode("append").save()
        self._expect("log", [(1, "a"), (2, "b")])

    def _sink(self) -> None:
        self._lines("typed", [json.dumps({"id": 1, "name": "a"}), json.dumps({"id": 2, "name": "b"})])
        rows = self._spark.readStream.schema("id long, name string").json(str(self._home / "typed"))
        self._stream(rows, sink("shop.streamed", self._lake, commit_user="smoke"), "typed")
        self._expect("streamed", [(1, "a"), (2, "b")])

    def _records(self) -> None:
        self._lines("records", _records())
        rows = self._spark.readStream.text(str(self._home / "records"), lineSep="\n")
        self._stream(rows, sink("shop.raw", self._lake, format="debezium-json", commit_user="smoke"), "raw")
        self._expect("raw", [(1, "a"), (2, "b")])

    def _state(self) -> None:
        """Let the driver fail after the table's commit: the restart repeats the batch, and goes on with its state."""
        into, failed = sink("shop.counted", self._lake, commit_user="smoke"), self._home / "failed"

        def apply(batch: Any, batch_id: int) -> None:
            into(batch, batch_id)
            if batch_id == 1 and not failed.exists():  # a file: on Connect this function runs in another process
                failed.touch()
                raise RuntimeError("after the commit")

        self._lines("events", [json.dumps({"id": 1}), json.dumps({"id": 2})])
        for number in range(2, 5):
            (self._home / "events" / f"{number}.jsonl").write_text(json.dumps({"id": 1}) + "\n")
        for _ in range(2):
            rows = self._spark.readStream.schema("id long").option("maxFilesPerTrigger", 1)
            counts = rows.json(str(self._home / "events")).groupBy("id").count()
            counts = counts.selectExpr("id", "cast(count as string) name")
            query = counts.writeStream.outputMode("update").foreachBatch(apply).trigger(availableNow=True)
            query = query.option("checkpointLocation", str(self._home / "c-counted")).start()
            try:
                query.awaitTermination()
            except Exception as error:
                if "after the commit" not in str(error):
                    raise
        self._expect("counted", [(1, "4"), (2, "1")])

    def _changes(self) -> None:
        rows = self._reader(self._spark.readStream, "streamed").option("read.changelog", "true").load()
        query = rows.writeStream.format("json").option("path", str(self._home / "changes"))
        query = query.option("checkpointLocation", str(self._home / "c-changes")).trigger(availableNow=True).start()
        query.awaitTermination()
        found = sorted(
            line for path in (self._home / "changes").glob("*.json") for line in path.read_text().splitlines()
        )
        assert [json.loads(line)["rowkind"] for line in found] == ["+I", "+I"], found

    def _append_stream(self) -> None:
        """Let Spark repeat the last batch: the table has it already."""
        self._lines("appended", [json.dumps({"id": 1, "name": "a"}), json.dumps({"id": 2, "name": "b"})])
        checkpoint = self._home / "c-appended"
        for _ in range(2):
            rows = self._spark.readStream.schema("id long, name string").json(str(self._home / "appended"))
            query = self._reader(rows.writeStream, "appended").option("checkpointLocation", str(checkpoint))
            query.trigger(availableNow=True).start().awaitTermination()
            for path in (checkpoint / "commits").glob("*0*"):
                path.unlink()
        self._expect("appended", [(1, "a"), (2, "b")])

    def _metrics(self) -> None:
        listener = MetricsListener(port=0)
        self._spark.streams.addListener(listener)
        into, found = sink("shop.measured", self._lake), []

        def apply(batch: Any, batch_id: int) -> None:
            into(batch, batch_id)
            with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/metrics", timeout=60) as answer:
                found.append(answer.read().decode())

        self._lines("measured", [json.dumps({"id": 1, "name": "a"})])
        rows = self._spark.readStream.schema("id long, name string").json(str(self._home / "measured"))
        self._stream(rows, apply, "measured")
        listener.close()
        assert ',table="shop.measured"} 1.0' in found[0], found

    def _row_changes(self) -> None:
        delete(self._spark, "shop.keyed", self._lake, "id >= 2")
        update(self._spark, "shop.keyed", self._lake, {"name": "upper(name)"}, "id = 1")
        source = self._spark.createDataFrame([(0, "x"), (7, "y")], "id long, name string")
        merge(source, "shop.keyed", self._lake, matched_update="*", not_matched_insert="*")
        self._expect("keyed", [(0, "x"), (1, "N1"), (7, "y")])

    def _run(self) -> None:
        from tidelake.spark.pipeline_query import start_query  # noqa: PLC0415 - it need not be importable everywhere

        self._lines("log", [*_records(), *_records("u1"), *_records("u2")])
        text = (
            f"warehouse: {self._lake}\nsource: {{type: change-log-folder, path: {self._home}/log, until: end}}\n"
            "tables: [{name: shop.made, match: d.t, primary_key: [id], columns: {id: BIGINT}, options: {bucket: 1}}, "
            "{name: 'many.{table}', match: 'd.u*'}]\n"
        )
        running = start_query(self._spark, parse_config(text, "smoke", pipeline="smoke"), str(self._home / "c-run"))
        running.query.awaitTermination()
        assert running.has_ended()
        self._expect("made", [(1, "a"), (2, "b")])
        assert self._catalog.list_tables("many") == ["u1", "u2"]

    def _reader(self, of: Any, table: str) -> Any:
        return of.format("tidelake").option("warehouse", self._lake).option("table", f"shop.{table}")

    def _lines(self, folder: str, lines: list[str]) -> None:
        (self._home / folder).mkdir()
        (self._home / folder / "1.jsonl").write_text("".join(line + "\n" for line in lines))

    def _stream(self, rows: Any, into: Any, checkpoint: str) -> None:
        query = rows.writeStream.foreachBatch(into).option("checkpointLocation", str(self._home / f"c-{checkpoint}"))
        query.trigger(availableNow=True).start().awaitTermination()

    def _expect(self, table: str, rows: list[tuple[int, str]]) -> None:
        found = self._catalog.table(f"shop.{table}").scan().to_arrow().sort_by("id").to_pylist()
        assert [tuple(row.values()) for row in found] == rows, found


def _records(table: str = "t") -> list[str]:
    source = {"db": "d", "table": table, "connector": "mysql"}
    lines = []
    for offset, row in enumerate(({"id": 1, "name": "a"}, {"id": 2, "name": "b"})):
        value = json.dumps({"before": None, "after": row, "op": "c", "source": source})
        place = {"topic": f"d.{table}", "partition": 0, "offset": offset, "timestamp_ms": 1}
        lines.append(json.dumps({**place, "key": json.dumps({"id": row["id"]}), "value": value}))
    return lines


def _session(kind: str) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.remote("local[2]") if kind == "connect" else SparkSession.builder.master("local[2]")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def main() -> None:
    kind, home, only = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    spark = _session(kind)
    found = {}
    try:
        for name, step in Smoke(spark, home).steps().items():
            if only and name not in only:
                continue
            try:
                step()
                found[name] = "done"
            except Exception as error:  # reported, and judged by the caller
                lines = [line for line in str(error).splitlines() if line.strip()]
                found[name] = f"{type(error).__name__}: {' … '.join([*lines[:1], *lines[1:][-3:]])}"
                if _NOT_FOUND in str(error):  # within the text of Java's error
                    found[name] = f"{_NOT_FOUND}: {found[name]}"
    finally:
        spark.stop()
    print(json.dumps({"pyspark": pyspark.__version__, "steps": found}))


if __name__ == "__main__":
    main()
