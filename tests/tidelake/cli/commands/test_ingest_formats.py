"""`tidelake ingest plan` and `run` with every format: the samples of a format, from a folder of change-log files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelake
from tests.support.cases import recorded_folder, sample_folders
from tests.support.command_line import Call
from tests.support.schema_registry import schema_registry
from tidelake.ingest.formats.registry import FORMATS, format_class

SAMPLED = [path.name for path in sample_folders()]
# A column of a sample's table, which the records declare no types of.
COLUMN = {"debezium-bson": "_id", "ogg-json": "ID"}


@pytest.fixture
def registry_options(name: str) -> Iterator[str]:
    schemas = recorded_folder() / "formats" / name / "schemas.json"
    with schema_registry(schemas if schemas.exists() else None) as registry:
        yield f", schema_registry_url: '{registry.url}'" if schemas.exists() else ""


def write_config(tmp_path: Path, name: str, options: str) -> Path:
    (tmp_path / "in").mkdir()
    shutil.copyfile(recorded_folder() / "formats" / name / "messages.jsonl", tmp_path / "in" / "1.jsonl")
    path = tmp_path / "samples.yaml"
    path.write_text(
        f"warehouse: {tmp_path}/lake\n"
        f"source: {{type: change-log-folder, path: {tmp_path}/in, until: end}}\n"
        f"format: {name}\n"
        f"format_options: {{truncates: skip{options}}}\n"
        "errors: {tolerance: all}\n"
        "tables: [{name: samples.rows, match: ['*'], options: {bucket: 1}, "
        f"primary_key: [{COLUMN.get(name, 'id')}]}}]\n"
    )
    return path


@pytest.mark.parametrize("name", SAMPLED)
def test_plan_changes_nothing_and_run_reads_the_samples_to_their_end(
    name: str, registry_options: str, call: Call, tmp_path: Path
) -> None:
    path = write_config(tmp_path, name, registry_options)
    planned = call("ingest", "plan", path)
    assert planned.code == 0, planned.err
    assert not (tmp_path / "lake").exists()
    ran = call("ingest", "run", path)
    assert ran.code == 0, ran.err
    table = tidelake.open_catalog(f"{tmp_path}/lake").table("samples.rows")
    changed = {row for snapshot in table.snapshots() if (row := snapshot.delta_record_count)}
    assert changed, "records became rows, even if later ones deleted them"
    assert "end of source" in ran.out + ran.err


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_found_by_its_own_name(name: str) -> None:
    assert name == format_class(name).NAME


def test_every_format_without_samples_is_listed() -> None:
    unsampled = FORMATS.keys() - set(SAMPLED)
    what_to_do = "add messages to tests/recorded/formats/<name>, or list it here"
    flattened = {"debezium-flattened-json", "debezium-flattened-avro"}  # the records of these captures, flattened
    assert unsampled == {
        "debezium-json",
        "debezium-cloudevents",
        "avro",
        "protobuf",
        "csv",
        "debezium-outbox",
        *flattened,
    }, what_to_do


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("debezium-avro", "set `schema_registry_url` in `format_options`"),
        ("avro", "set `schema_registry_url` in `format_options`"),
        ("protobuf", "set `schema_registry_url` in `format_options`"),
        ("csv", "set `columns` in `format_options`"),
    ],
)
def test_plan_refuses_what_run_would_refuse(name: str, message: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    path = tmp_path / "shop.yaml"
    source = f"{{type: change-log-folder, path: {tmp_path}/in, until: end}}"
    path.write_text(f"warehouse: {tmp_path}/lake\nsource: {source}\nformat: {name}\ntables: [{{name: shop.t}}]\n")
    planned, ran = call("ingest", "plan", path), call("ingest", "run", path)
    assert (planned.code, message in planned.err) == (1, True), planned.err
    assert (ran.code, message in ran.err) == (1, True), ran.err
    assert not (tmp_path / "lake").exists()
