"""`tidelake spark run`, in its own process and JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import tidelake.__main__
from tests.support.command_line import Call
from tests.support.spark_classes import short_lived_jvm
from tests.support.spark_cluster import spark_cluster
from tests.tidelake.shop_log import create_shop_tables, write_shop_log
from tidelake import environment_archive, spark_prerequisites
from tidelake.cli.commands import spark
from tidelake.cli.demo.shop import ORDERS
from tidelake.environment_archive import EnvironmentArchive


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/changes, until: end}}\n"
        "tables: [{name: shop.orders}]\n"
    )
    return path


def run_on_spark(config: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tidelake", "spark", "run", str(config), "--json", "--master", "local[2]"]
    return subprocess.run([*command, "--conf", "spark.log.level=ERROR"], capture_output=True, text=True, check=False)


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_a_configuration_runs_on_spark(config: Path, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    orders = create_shop_tables(tmp_path / "lake")["orders"]
    run = run_on_spark(config)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout)["ended"] == "end of source"
    assert orders.scan().to_arrow().sort_by("id").to_pylist() == shop.expected_rows(ORDERS).to_pylist()
    assert (tmp_path / "lake" / "shop.spark").is_dir()


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.timeout(600)
def test_a_configuration_runs_on_the_workers_of_a_cluster(config: Path, tmp_path: Path) -> None:
    shop = write_shop_log(tmp_path / "changes")
    orders = create_shop_tables(tmp_path / "lake")["orders"]
    with spark_cluster(tmp_path) as cluster:
        command = [sys.executable, "-m", "tidelake", "spark", "submit", str(config), "--", "--master", cluster.url]
        command += ["--conf", "spark.log.level=ERROR", "--conf", "spark.driver.host=127.0.0.1"]
        command += ["--conf", f"spark.pyspark.python={sys.executable}", "--conf", "spark.executor.memory=512m"]
        command += ["--conf", f"spark.executor.extraJavaOptions={short_lived_jvm()}"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        (application,) = cluster.state()["completedapps"]
        executors = [path.name for path in tmp_path.glob("work-*/app-*/*/stderr")]
    assert (application["name"], application["cores"]) == ("tidelake shop", 2)
    assert len(executors) == 2
    assert orders.scan().to_arrow().sort_by("id").to_pylist() == shop.expected_rows(ORDERS).to_pylist()


@pytest.mark.interop
@pytest.mark.needs("Spark")
def test_a_master_that_contradicts_spark_submit_is_refused(config: Path, tmp_path: Path) -> None:
    create_shop_tables(tmp_path / "lake")
    script = str(tidelake.__main__.__file__)
    command = [
        spark.spark_submit_program(),
        "--master",
        "local[1]",
        script,
        "spark",
        "run",
        str(config),
        "--master",
        "local[2]",
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
    )
    assert run.returncode == 1
    assert "--master local[2], but spark-submit got local[1]" in run.stdout + run.stderr


@pytest.mark.interop
@pytest.mark.needs("Spark")
@pytest.mark.timeout(600)
def test_a_pipeline_that_changes_its_driver_is_refused_and_can_continue(
    call: Call, config: Path, tmp_path: Path
) -> None:
    write_shop_log(tmp_path / "changes")
    orders = create_shop_tables(tmp_path / "lake")["orders"]
    assert run_on_spark(config).returncode == 0
    rows = orders.scan().to_arrow().num_rows
    before = len(orders.snapshots())
    refused = call("ingest", "run", config)
    assert refused.code == 3
    assert "a Spark query, commit user 'spark-" in refused.err
    assert call("ingest", "plan", config).code == 3
    assert len(orders.snapshots()) == before
    continued = call("ingest", "run", config, "--accept-gap", "shop.orders", "--json")
    assert (continued.code, continued.document["rows"]) == (0, 0)
    back_to_spark = run_on_spark(config.rename(config.with_name("other.yaml")))  # and so in another directory
    assert back_to_spark.returncode == 0, back_to_spark.stderr
    assert "begins at the position of the tables" in back_to_spark.stderr
    assert orders.scan().to_arrow().num_rows == rows


def test_without_spark_the_missing_package_is_named(call: Call, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_prerequisites, "missing_for_spark", lambda: "Java was not found: install one")
    result = call("spark", "run", config)
    assert (result.code, result.out) == (1, "")
    assert result.err == "error: tidelake spark run: Spark can't run here. Java was not found: install one\n"


def test_this_environment_is_packed_and_the_options_of_spark_submit_are_printed(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed = EnvironmentArchive(tmp_path / "a.tar.gz", 7 << 20, ("tidelake 1.2",), Path("/usr/bin/python3.11"))
    monkeypatch.setattr(environment_archive, "pack_environment", lambda prefix, to: replace(packed, path=to))
    result = call("spark", "package", "-o", tmp_path / "env.tgz")
    assert result.code == 0
    assert "1 packages, 7 MiB" in result.err
    assert f"--archives {tmp_path}/env.tgz#tidelake --conf spark.pyspark.python=./tidelake/bin/python" in result.err
    wrong = call("spark", "package", "-o", tmp_path / "env.zip")
    assert (wrong.code, wrong.out) == (2, "")
    assert "env.zip: Spark knows the kind of an archive by its name; let it end with .tar.gz" in wrong.err
