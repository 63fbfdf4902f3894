"""`tidelake doctor` finds what is broken, names a remedy, and changes nothing."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.consumers import TableConsumers
from tidelake.doctor import machine, warehouse
from tidelake.doctor.checks import Check, Finding, Findings, Status, failed, ok, run_checks
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.settings import Config
from tidelake.schema import SetOption
from tidelake.storage.fileio.base import FileStatus
from tidelake.storage.fileio.disk_space import DiskSpace
from tidelake.storage.fileio.local import LocalFileIO

MIB = 1 << 20


def config_text(root: Path, more: str = "") -> str:
    (root / "in").mkdir(exist_ok=True)
    source = f"{{type: change-log-folder, path: {root}/in, until: end}}"
    return f"pipeline: p\nwarehouse: {root}/lake\nsource: {source}\ntables: [{{name: shop.t}}]\n{more}"


def write_config(root: Path, more: str = "") -> Path:
    path = root / "shop.yaml"
    path.write_text(config_text(root, more))
    return path


def create_table(root: Path, commits: int = 0, **options: str) -> None:
    catalog = tidelake.open_catalog(f"{root}/lake")
    catalog.create_database("shop")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = catalog.create_table(
        "shop.t",
        schema,
        primary_key=["id"],
        options={"bucket": "1", **{k.replace("_", "-"): v for k, v in options.items()}},
    )
    for number in range(commits):
        table.upsert(pa.table({"id": [number]}, schema=schema))


def contents(root: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_a_healthy_world_is_all_ok_and_every_byte_stays(call: Call, tmp_path: Path) -> None:
    create_table(tmp_path, commits=2)
    path = write_config(tmp_path)
    before = contents(tmp_path)
    said = call("doctor", path)
    assert said.code == 0
    marks = {line[0] for line in said.out.splitlines()[:-1]}
    assert marks == {"✓"}, said.out
    assert said.out.splitlines()[-1] == "0 failed, 0 warnings"
    assert contents(tmp_path) == before


def test_a_warehouse_that_does_not_exist_is_not_created(call: Call, tmp_path: Path) -> None:
    assert call("doctor", write_config(tmp_path)).code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "shop.yaml"]


@dataclass(frozen=True)
class Broken:
    """A world with one fault: the check that finds it, and words of the finding and its remedy."""

    breaks: Callable[[Path], Path]
    check: str
    status: Status
    found: str
    remedy: str


def lost_file(root: Path) -> Path:
    create_table(root, commits=1)
    next(root.glob("lake/shop.db/t/bucket-0/*.parquet")).unlink()
    return write_config(root)


def unused_options(root: Path) -> Path:
    create_table(root, write_buffer_size="8 mb")
    path = write_config(root)
    path.write_text(path.read_text().replace("{name: shop.t}", "{name: shop.t, options: {write-buffer-size: 16 mb}}"))
    return path


def unread_consumer(root: Path) -> Path:
    create_table(root, commits=2)
    table = tidelake.open_catalog(f"{root}/lake").table("shop.t")
    TableConsumers(table).reset("slow", 1)
    for path in root.glob("lake/shop.db/t/snapshot/snapshot-*"):
        path.write_text(_aged(path.read_text()))
    return write_config(root)


def _aged(text: str) -> str:
    snapshot = json.loads(text)
    snapshot["timeMillis"] -= 7 * 24 * 3_600_000
    return json.dumps(snapshot)


def many_runs(root: Path) -> Path:
    create_table(root, commits=4, write_only="true")
    catalog = tidelake.open_catalog(f"{root}/lake")
    catalog.alter_table(
        "shop.t",
        [
            SetOption("write-only", "false"),
            SetOption("num-sorted-run.compaction-trigger", "2"),
            SetOption("num-sorted-run.stop-trigger", "3"),
        ],
    )
    return write_config(root)


def bad_setting(root: Path) -> Path:
    return write_config(root, "chekpoint: {}\n")


def no_memory(root: Path) -> Path:
    return write_config(root, f"write: {{memory_bytes: {1 << 50}}}\n")


def kafka(root: Path, address: str) -> Path:
    path = write_config(root)
    source = f'{{type: kafka, bootstrap_servers: "{address}", topics: a}}'
    path.write_text(
        "\n".join(f"source: {source}" if x.startswith("source:") else x for x in path.read_text().split("\n"))
    )
    return path


def no_broker(root: Path) -> Path:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return kafka(root, f"127.0.0.1:{free.getsockname()[1]}")


def bad_format_option(root: Path) -> Path:
    return write_config(root, "format: debezium-avro\nformat_options: {schema_registry_ulr: 'http://127.0.0.1:1'}\n")


def no_registry(root: Path) -> Path:
    return write_config(root, "format: debezium-avro\nformat_options: {schema_registry_url: 'http://127.0.0.1:1'}\n")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Broken(lost_file, "tables", Status.FAILED, "parquet", ""), id="a data file is lost"),
        pytest.param(
            Broken(unused_options, "options", Status.WARNING, "write-buffer-size", "--set"), id="an option differs"
        ),
        pytest.param(
            Broken(unread_consumer, "consumers", Status.WARNING, "consumer slow", "consumers delete shop.t CONSUMER"),
            id="a consumer is far behind",
        ),
        pytest.param(
            Broken(many_runs, "sorted runs", Status.WARNING, "sorted runs", "compact shop.t"),
            id="compaction is behind",
        ),
        pytest.param(
            Broken(bad_setting, "configuration", Status.FAILED, "chekpoint", "Correct the configuration"),
            id="a setting is misspelled",
        ),
        pytest.param(
            Broken(
                bad_format_option, "configuration", Status.FAILED, "schema_registry_ulr", "Correct the configuration"
            ),
            id="an option of the format is misspelled",
        ),
        pytest.param(
            Broken(no_memory, "memory", Status.FAILED, "MiB of memory", "write.memory_bytes"),
            id="the budgets are too large",
        ),
        pytest.param(
            Broken(no_broker, "broker", Status.FAILED, "can't be reached", "source.bootstrap_servers"),
            id="the broker is away",
        ),
        pytest.param(
            Broken(no_registry, "schema registry", Status.FAILED, "schema registry", "schema_registry_url"),
            id="the registry is away",
        ),
    ],
)
def test_each_fault_is_found_by_its_check(call: Call, tmp_path: Path, case: Broken) -> None:
    path = case.breaks(tmp_path)
    before = contents(tmp_path)
    said = call("doctor", path, "--json")
    found = {one["check"]: one["findings"] for one in said.document["checks"]}
    [finding] = [one for one in found[case.check] if one["status"] == case.status]
    assert case.found in finding["found"]
    assert case.remedy in finding["remedy"]
    assert finding["remedy"]
    assert said.code == (1 if case.status is Status.FAILED else 0)
    assert contents(tmp_path) == before


# ---------------------------------------------------------------- machine and store


def parsed(root: Path, more: str = "") -> Config:
    return parse_config(config_text(root, more), "shop.yaml")


@pytest.mark.parametrize(
    ("limit_bytes", "status"),
    [(288 * MIB, Status.FAILED), (500 * MIB, Status.WARNING), (544 * MIB, Status.OK)],
)
def test_memory_is_compared_with_the_budgets(tmp_path: Path, limit_bytes: int, status: Status) -> None:
    [finding] = machine.check_memory(parsed(tmp_path), limit_bytes)
    assert finding.status is status


@pytest.mark.parametrize(
    ("free_bytes", "status"),
    [(255 * MIB, Status.FAILED), (1023 * MIB, Status.WARNING), (1024 * MIB, Status.OK)],
)
def test_space_for_spilled_rows(tmp_path: Path, free_bytes: int, status: Status) -> None:
    [finding] = machine.check_spill_space(parsed(tmp_path), DiskSpace("/", 1 << 40, free_bytes, 1000))
    assert finding.status is status


@pytest.mark.parametrize(("limit", "status"), [(63, Status.FAILED), (223, Status.WARNING), (224, Status.OK)])
def test_open_files(limit: int, status: Status) -> None:
    [finding] = machine.check_descriptors(10, limit)
    assert finding.status is status


def test_the_smallest_limit_of_the_cgroups_counts(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "memory.max").write_text(f"{64 * MIB}\n")
    (tmp_path / "a" / "b" / "memory.max").write_text("max\n")
    (tmp_path / "own").write_text("0::/a/b\n")
    assert machine.memory_limit_bytes(tmp_path, tmp_path / "own") == 64 * MIB


class ReplacingFileIO(LocalFileIO):
    """A store that ignores the condition of a put."""

    def create_if_absent(self, path: str, data: bytes) -> bool:
        self.write(path, data)
        return True


class LateFileIO(LocalFileIO):
    """A store whose clock is an hour ahead."""

    def list_directory(self, path: str) -> list[FileStatus]:
        return [
            FileStatus(one.name, one.size_bytes, one.modified_ms + 3_600_000, one.is_directory)
            for one in super().list_directory(path)
        ]


@pytest.mark.parametrize(
    ("io", "status", "remedy"),
    [
        pytest.param(ReplacingFileIO(), Status.FAILED, "conditional writes", id="no conditional put"),
        pytest.param(LateFileIO(), Status.WARNING, "Correct the clock", id="clock"),
    ],
)
def test_a_store_that_can_not_be_trusted(tmp_path: Path, io: LocalFileIO, status: Status, remedy: str) -> None:
    finding = warehouse.check_store(parsed(tmp_path), io)[-1]
    assert finding.status is status
    assert remedy in finding.remedy
    assert not list(tmp_path.glob(f"{warehouse.PROBE_PREFIX}*"))


# ---------------------------------------------------------------- running checks


def test_a_check_that_hangs_or_fails_hides_no_other() -> None:
    hanging, waiting = os.pipe()

    def fail() -> Findings:
        raise ValueError("broken")

    def check(name: str, look: Callable[[], Findings]) -> Check:
        return Check(name, look, limit_s=0.5, remedy="mend it")

    def hang() -> Findings:
        os.read(hanging, 1)
        return [ok("late")]

    results = run_checks([check("a", hang), check("b", fail), check("c", lambda: [ok("fine")])])
    os.write(waiting, b"x")
    assert [(r.name, r.is_abandoned, r.findings) for r in results] == [
        ("a", True, [failed("no answer within 0.5 s", "mend it")]),
        ("b", False, [failed("ValueError: broken", "mend it")]),
        ("c", False, [Finding(Status.OK, "fine")]),
    ]


@pytest.mark.parametrize("more", ["", "freshness: {target_ms: 5000}\n"], ids=["without a target", "with a target"])
def test_a_target_of_freshness_is_compared_with_the_store(call: Call, tmp_path: Path, more: str) -> None:
    said = call("doctor", write_config(tmp_path, more), "--json")
    found = {one["check"]: one["findings"] for one in said.document["checks"]}
    assert ("freshness" in found) == bool(more)
    if more:
        assert found["freshness"][0]["found"].startswith("the store allows the target of 5 s")


def test_a_contradiction_of_freshness_fails_the_configuration(call: Call, tmp_path: Path) -> None:
    said = call("doctor", write_config(tmp_path, "freshness: {target_ms: 500}\ncheckpoint: {interval_ms: 500}\n"))
    assert said.code == 1
    assert "chooses the interval" in said.out
