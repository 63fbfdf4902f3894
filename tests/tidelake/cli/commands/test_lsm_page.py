"""`tidelake table show --web`: what its page knows of the sorted runs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.command_line import Call
from tidelake.ingest.monitoring.lsm_page import lsm_page

SCHEMA = pa.schema([("region", pa.string()), ("id", pa.int64()), ("name", pa.string())])


def new_table(warehouse: Path, **arguments: Any) -> tidelake.Table:
    catalog = tidelake.open_catalog(str(warehouse))
    catalog.create_database("shop")
    arguments = {"primary_key": ["region", "id"], "options": {"bucket": "1"}, **arguments}
    return catalog.create_table("shop.orders", SCHEMA, **arguments)


def write(table: tidelake.Table, *commits: Sequence[tuple[str, int, str | None]]) -> None:
    with table.writer(commit_user="test") as writer:
        for number, rows in enumerate(commits, len(table.snapshots()) + 1):
            writer.write([dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
            writer.commit(number)


def data_of(page: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def states(data: dict[str, Any]) -> list[set[str]]:
    """The names and levels of the files at each snapshot, played back as the page does it."""
    live = set(data["first"])
    found = [live]
    for snapshot in data["snapshots"][1:]:
        live = (live - set(snapshot["removed"])) | set(snapshot["added"])
        found.append(live)
    return [{f"{data['files'][f]['name']}@{data['files'][f]['level']}" for f in state} for state in found]


def files_at(table: tidelake.Table, snapshot: int) -> set[str]:
    catalog = tidelake.open_catalog(str(Path(table.location).parents[1]))
    rows = catalog.table(f"{table.name}$files").scan(snapshot=snapshot).to_arrow().to_pylist()
    return {f"{Path(row['file_path']).name}@{row['level']}" for row in rows}


def test_each_snapshot_has_the_files_that_the_table_had(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    write(table, *([("north", number, "new"), ("south", 100 - number, None)] for number in range(12)))
    data = data_of(lsm_page(table.context))
    ids = [snapshot["id"] for snapshot in data["snapshots"]]
    assert ids == [snapshot.id for snapshot in table.snapshots()]
    assert states(data) == [files_at(table, snapshot) for snapshot in ids]
    reasons = {snapshot["reason"] for snapshot in data["snapshots"] if snapshot["kind"] == "COMPACT"}
    assert len(reasons - {None}) == len(reasons) > 0


def test_only_the_newest_snapshots_are_read(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"bucket": "1", "num-sorted-run.compaction-trigger": "2"})
    write(table, *([("north", number, "new")] for number in range(12)))
    data = data_of(lsm_page(table.context, snapshots_max=3))
    newest = table.snapshots()[-3:]
    assert [snapshot["id"] for snapshot in data["snapshots"]] == [snapshot.id for snapshot in newest]
    assert states(data) == [files_at(table, snapshot.id) for snapshot in newest]


def test_files_lie_over_the_order_of_their_keys(tmp_path: Path) -> None:
    table = new_table(tmp_path, options={"bucket": "1", "write-only": "true"})
    write(table, [("b", 5, ""), ("a", 10, "")], [("b", -1, ""), ("a", 2, "")])
    data = data_of(lsm_page(table.context))
    assert data["key"] == ["region", "id"]
    assert data["keys"] == [["a", 2], ["a", 10], ["b", -1], ["b", 5]]
    assert [file["keys"] for file in data["files"]] == [[1, 3], [0, 2]]


def test_buckets_have_the_names_of_their_partitions(tmp_path: Path) -> None:
    table = new_table(tmp_path, partition_by=["region"])
    write(table, [("north", 1, ""), ("south", 1, "")])
    data = data_of(lsm_page(table.context))
    assert data["buckets"] == ["region=north bucket 0", "region=south bucket 0"]
    assert data["key"] == ["id"]


def test_no_text_of_a_table_ends_the_script(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    hostile = "</script><script>alert(1)</script>"
    write(table, [(hostile, 1, hostile)])
    page = lsm_page(table.context)
    assert hostile not in page
    assert data_of(page)["keys"] == [[hostile, 1]]


def test_a_page_needs_no_other_file(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    write(table, [("north", 1, "")])
    assert re.findall(r"""(?:src|href)=|url\(|@import""", lsm_page(table.context)) == []


def test_the_command_writes_a_page(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(new_table(tmp_path / "lake"), [("north", 1, "")])
    monkeypatch.chdir(tmp_path)
    assert (
        call("table", "show", "shop.orders", "-w", "lake", "--web").out
        == "wrote shop.orders.html: open it in a browser\n"
    )
    said = call("table", "show", "shop.orders", "-w", "lake", "--json", "--web", "page.html")
    assert json.loads(said.out) == {"file": str(tmp_path / "page.html")}
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "file", "refusal"),
    [
        pytest.param(
            {"primary_key": []}, "p.html", "has no primary key, so it has no sorted runs to draw", id="no key"
        ),
        pytest.param({}, "p.html", "has no snapshot yet; write rows first", id="no snapshot"),
    ],
)
def test_a_table_without_sorted_runs_is_refused(
    call: Call, tmp_path: Path, arguments: dict[str, Any], file: str, refusal: str
) -> None:
    new_table(tmp_path, **({"options": {}} | arguments))
    said = call("table", "show", "shop.orders", "-w", tmp_path, "--web", tmp_path / file)
    assert said.code != 0
    assert refusal in said.err
    assert not (tmp_path / file).exists()


def test_a_file_that_cannot_be_written_is_named(call: Call, tmp_path: Path) -> None:
    write(new_table(tmp_path), [("north", 1, "")])
    said = call("table", "show", "shop.orders", "-w", tmp_path, "--web", tmp_path / "missing" / "page.html")
    assert "missing/page.html' can't be written" in said.err
