"""`tidelake spark run`, in a process and a JVM of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidelake.cli.calling import Call
from tests.tidelake.shop_log import create_shop_tables, write_shop_log
from tidelake.cli import spark
from tidelake.demo.shop import ORDERS


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.orders}]\n"
    )
    return path


def test_a_configuration_runs_on_spark(config: Path, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    orders = create_shop_tables(tmp_path / "lake")["orders"]
    command = [sys.executable, "-m", "tidelake", "spark", "run", str(config), "--json", "--master", "local[2]"]
    run = subprocess.run([*command, "--conf", "spark.log.level=ERROR"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["ended"] == "end of source"
    assert orders.scan().to_arrow().sort_by("id").to_pylist() == shop.truth(ORDERS).to_pylist()
    assert (tmp_path / "lake" / "shop.spark").is_dir()


def test_without_spark_it_says_what_is_missing(call: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark, "missing_for_spark", lambda: "there is no Java: install one")
    said = call("spark", "run", config)
    assert (said.code, said.out) == (1, "")
    assert said.err == "error: tidelake spark run: Spark can't run here. there is no Java: install one\n"
