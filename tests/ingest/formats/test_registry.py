"""Formats are found by name, and no code outside of a format's package depends on it."""

from __future__ import annotations

import ast
import asyncio
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pytest

import tidelake
from tidelake.errors import UnsupportedFeature
from tidelake.ingest import formats
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.formats.base import DecodedBatch, Decoder, Format, InferredTable, TableRows, TargetOf
from tidelake.ingest.formats.format_capabilities import FormatCapabilities
from tidelake.ingest.formats.registry import FORMATS, open_format
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.pipeline.builder import build_pipeline
from tidelake.ingest.raw_batch import RawBatch
from tidelake.ingest.spark.batch_rows import RawRecords, open_reader
from tidelake.ingest.spark.batch_statistics import BatchStatistics
from tidelake.storage.model.format import KIND_COLUMN
from tidelake.storage.model.types import STRING, DataField, not_null


class _TextDecoder:
    def __init__(self, target_of: TargetOf) -> None:
        self._target_of = target_of

    def decode(self, batch: RawBatch) -> DecodedBatch:
        source = SourceTable(batch.topic)
        target = self._target_of(source)
        if target is None:
            return DecodedBatch((), (), {}, {source: 0})
        origins = [dict(batch.headers.get(row, ())).get("origin", b"") or b"" for row in range(len(batch))]
        columns = {
            "id": batch.keys.cast(pa.string()),
            "text": batch.values.cast(pa.string()),
            "origin": pa.array(origins, pa.binary()).cast(pa.string()),
            KIND_COLUMN: pa.array(np.zeros(len(batch), np.int8)),
        }
        return DecodedBatch((TableRows(target, pa.record_batch(columns), batch.offsets),), (), {}, {})


@dataclass(frozen=True)
class PlainText:
    """An example of an added format: the key is the id, the value is a text, and a header names the origin."""

    NAME: ClassVar = "plain-text"
    KEPT_HEADERS: ClassVar = frozenset({"origin"})
    DECODING_BLOCKS: ClassVar = False
    CAPABILITIES: ClassVar = FormatCapabilities()

    @classmethod
    def with_options(cls, options: Mapping[str, Any]) -> PlainText:
        assert not options
        return cls()

    def decoder(self, target_of: TargetOf) -> Decoder:
        return _TextDecoder(target_of)

    def infer_table(self, batch: RawBatch, row: int) -> InferredTable:
        fields = (DataField(0, "id", not_null(STRING)), DataField(1, "text", STRING), DataField(2, "origin", STRING))
        return InferredTable(fields, ("id",))


@pytest.fixture
def plain_text(monkeypatch: pytest.MonkeyPatch) -> type[Format]:
    monkeypatch.setitem(FORMATS, PlainText.NAME, f"{__name__}:PlainText")
    return PlainText


def test_a_name_that_no_format_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        UnsupportedFeature,
        match=r"format = debezium-jsn: this release can decode debezium-json, .*, csv; did you",
    ):
        open_format("debezium-jsn", {})


def test_every_format_has_a_row_in_its_page_in_the_order_of_the_registry() -> None:
    page = (Path(__file__).parents[3] / "docs" / "formats.md").read_text(encoding="utf-8")
    table = page.partition("|---|")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert rows == [*FORMATS], "docs/formats.md begins with a table: add a row there for each format"


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_travels_to_executors_with_its_options(name: str) -> None:
    opened = open_format(name, {})
    assert pickle.loads(pickle.dumps(opened)) == opened


def _lines(folder: Path) -> None:
    folder.mkdir()
    records = [
        {"topic": "notes", "partition": 0, "offset": 0, "key": "1", "value": "one", "headers": [["origin", "here"]]},
        {"topic": "notes", "partition": 0, "offset": 1, "key": "2", "value": "two", "headers": [["other", "x"]]},
    ]
    (folder / "1.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def test_a_new_format_needs_nothing_but_its_class_and_its_name_in_the_registry(
    tmp_path: Path, plain_text: type[Format]
) -> None:
    _lines(tmp_path / "in")
    text = f"""
        warehouse: {tmp_path}/lake
        source: {{type: change-log-folder, path: {tmp_path}/in, until: end}}
        format: {plain_text.NAME}
        tables: [{{name: shop.notes, options: {{bucket: 1}}}}]
    """
    asyncio.run(build_pipeline(parse_config(text, "shop.yaml", pipeline="shop")).run())
    rows = tidelake.open_catalog(f"{tmp_path}/lake").table("shop.notes").scan().to_arrow().sort_by("id")
    assert rows.to_pylist() == [
        {"id": "1", "text": "one", "origin": "here"},
        {"id": "2", "text": "two", "origin": ""},
    ]


def test_a_spark_sink_decodes_any_format_of_the_registry(tmp_path: Path, plain_text: type[Format]) -> None:
    catalog = tidelake.open_catalog(f"{tmp_path}/lake")
    catalog.create_database("shop")
    columns = pa.schema([pa.field("id", pa.string(), False), ("text", pa.string()), ("origin", pa.string())])
    context = catalog.create_table("shop.notes", columns, primary_key=["id"], options={"bucket": "1"}).context
    header = {"key": "origin", "value": b"here"}
    headers = pa.array([[header]], pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])))
    records = {"topic": ["notes"], "partition": pa.array([0], pa.int32()), "offset": [5], "key": [b"1"]}
    batch = pa.record_batch({**records, "value": [b"one"], "headers": headers})
    ((_, rows),) = open_reader([(context, RawRecords(open_format(plain_text.NAME, {})))], BatchStatistics()).rows(batch)
    assert rows.select(["id", "text", "origin"]).to_pylist() == [{"id": "1", "text": "one", "origin": "here"}]


def _imports(path: Path) -> set[str]:
    """The modules that a file imports, also inside its functions."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def _home(module: str) -> str:
    """The package of a format's module, or the module itself if it is directly in `tidelake.ingest.formats`."""
    package = module.rpartition(".")[0]
    return module if package == formats.__name__ else package


def test_only_formats_import_formats() -> None:
    homes = {_home(place.partition(":")[0]) for place in FORMATS.values()}
    root = Path(tidelake.__path__[0])
    inside = Path(formats.__path__[0]).resolve()
    files = [
        path
        for folder in (root, *(path for path in root.iterdir() if path.is_symlink()))
        for path in folder.resolve().rglob("*.py")
        if not path.is_relative_to(inside)
    ]
    assert len(files) > 500, "the source files were not found"
    found = [
        f"{path.name} imports {module}"
        for path in files
        for module in _imports(path)
        if any(module == home or module.startswith(f"{home}.") for home in homes)
    ]
    # The demo writes Debezium's records itself.
    assert {line.partition(" ")[0] for line in found} == {"change_log.py"}, "\n".join(found)


def test_formats_that_no_configuration_names_are_not_loaded() -> None:
    program = (
        "import sys; from tidelake.ingest.formats.registry import FORMATS, open_format; open_format('canal-json', {}); "
        "print(*(name for name, place in FORMATS.items() if place.partition(':')[0] in sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["canal-json"]
