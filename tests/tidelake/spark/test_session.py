"""Sessions that Tidelake starts: the settings of their JVM."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.cli.commands.spark import _jvm_flags
from tidelake.spark.session import jvm_flags

FLAGS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
DRIVER, EXECUTOR = "spark.driver.defaultJavaOptions", "spark.executor.defaultJavaOptions"


@pytest.fixture
def settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    for name in ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))

    def write(text: str) -> Path:
        path = tmp_path / "spark-defaults.conf"
        path.write_text(text)
        return path

    return write


def test_arrow_flags_precede_user_options(settings_file: Callable[[str], Path]) -> None:
    assert jvm_flags() == {DRIVER: FLAGS, EXECUTOR: FLAGS}
    settings_file("spark.driver.extraJavaOptions -Dmine=1\n")
    assert jvm_flags() == {DRIVER: FLAGS, EXECUTOR: FLAGS}, "Spark puts ours in front of theirs"


def test_an_explicit_setting_is_kept(settings_file: Callable[[str], Path], tmp_path: Path) -> None:
    settings_file(f"{DRIVER}=-Dmine=1\n")
    assert jvm_flags() == {EXECUTOR: FLAGS}
    other = tmp_path / "other.conf"
    other.write_text(f"{EXECUTOR} -Dmine=1\n")
    for named in (["--properties-file", str(other)], [f"--properties-file={other}"]):
        assert _jvm_flags(["--master", "local[2]", *named]) == []
    assert _jvm_flags(["--master", "local[2]"]) == ["--conf", f"{EXECUTOR}={FLAGS}"]


def test_a_flag_set_in_the_environment_is_not_repeated(
    settings_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Darrow.enable_unsafe_memory_access=false")
    assert jvm_flags() == dict.fromkeys((DRIVER, EXECUTOR), "-Darrow.enable_null_check_for_get=false")
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-Darrow.enable_null_check_for_get=true")
    assert jvm_flags() == {}


MOMENT = datetime(2026, 5, 1, 12, 30, 15, 123000)
VALUES: dict[str, tuple[pa.DataType, Any]] = {
    "flag": (pa.bool_(), True),
    "tiny": (pa.int8(), -1),
    "small": (pa.int16(), -2),
    "number": (pa.int32(), -3),
    "big": (pa.int64(), -4),
    "single": (pa.float32(), 0.5),
    "real": (pa.float64(), 0.25),
    "price": (pa.decimal128(10, 2), Decimal("1.50")),
    "sum": (pa.decimal128(38, 18), Decimal("1.500000000000000000")),
    "name": (pa.string(), "a"),
    "raw": (pa.binary(), b"a"),
    "day": (pa.date32(), date(2026, 5, 1)),
    "t": (pa.time32("ms"), time(1, 2, 3)),
    "at": (pa.timestamp("us"), MOMENT),
    "zoned": (pa.timestamp("us", "UTC"), MOMENT.replace(tzinfo=UTC)),
    "list": (pa.list_(pa.int32()), [1, None]),
    "texts": (pa.list_(pa.string()), [None, "a"]),
    "map": (pa.map_(pa.string(), pa.float64()), [("a", None), ("b", 1.0)]),
    "parts": (pa.struct([("n", pa.int32()), ("s", pa.string()), ("l", pa.list_(pa.int64()))]), {"n": None, "s": "a"}),
}

PROGRAM = """
import json, sys
from tidelake.spark import register
from tidelake.spark.session import start_session

home = sys.argv[1]
user = {"spark.driver.extraJavaOptions": "-Dmine=1", "spark.log.level": "OFF"}
spark = start_session("flags", "local[1]", {**user, "spark.local.dir": home})
property = spark._jvm.java.lang.System.getProperty
register(spark)
rows = spark.read.format("tidelake").options(warehouse=home + "/lake", table="shop.nulls").load()
names = [name for name in rows.columns if name != "id"]
# as values that Spark's code takes out, and as has no unit
values = [str(row) for row in rows.orderBy("id").collect()]
unknown = rows.selectExpr(*(f"sum(int(`{name}` is null))" for name in names)).collect()
flags = [property(f"arrow.{name}") for name in ("enable_unsafe_memory_access", "enable_null_check_for_get")]
print(json.dumps([flags, property("mine"), values, list(unknown[0])]))
spark.stop()
"""


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_nulls_of_every_type_are_nulls_under_the_flags(tmp_path: Path) -> None:
    catalog = tidelake.open_catalog(str(tmp_path / "lake"))
    catalog.create_database("shop")
    schema = pa.schema([("id", pa.int64()), *((name, kind) for name, (kind, _) in VALUES.items())])
    table = catalog.create_table("shop.nulls", schema)
    rows = [
        {"id": i, **{name: value if (i + n) % 3 else None for n, (name, (_, value)) in enumerate(VALUES.items())}}
        for i in range(10)
    ]
    with table.writer() as writer:
        writer.write(pa.Table.from_pylist(rows, schema))
        writer.commit()
    run = subprocess.run([sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    flags, mine, values, unknown = json.loads(run.stdout.splitlines()[-1])
    assert flags == ["true", "false"]
    assert mine == "1"
    nulls = [sum(row[name] is None for row in rows) for name in VALUES]
    assert unknown == nulls
    assert [value.count("=None") for value in values] == [
        sum(row[name] is None for name in VALUES) + 2 * (row["parts"] is not None) for row in rows
    ]
