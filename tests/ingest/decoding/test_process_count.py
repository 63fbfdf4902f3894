"""How many processes decode: the setting, the cores, what a container may use."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from tidelake.errors import ConfigError
from tidelake.ingest.config.config import parse_config
from tidelake.ingest.decoding import process_count as counting
from tidelake.ingest.decoding.process_count import decode_processes, process_count, usable_cores
from tidelake.ingest.settings import Config


def config(processes: str, format_: str = "debezium-json") -> Config:
    text = f"""
        warehouse: /lake
        source: {{type: kafka, bootstrap_servers: b, topics: t, decode_processes: {processes}}}
        format: {format_}
        tables: [{{name: shop.orders}}]
    """
    return parse_config(text, "p.yaml", pipeline="p")


@pytest.mark.parametrize(
    ("setting", "cores", "count"),
    [
        pytest.param(0, 8, 0, id="0: the pipeline's process"),
        pytest.param(3, 1, 3, id="a number, whatever the cores"),
        pytest.param("auto", 1, 0, id="auto with one core: the pipeline's process"),
        pytest.param("auto", 2, 1, id="auto with two cores"),
        pytest.param("auto", 4, 3, id="auto with four cores"),
        pytest.param("auto", 64, 4, id="auto with many cores"),
    ],
)
def test_the_setting_and_the_cores_decide(setting: Literal["auto"] | int, cores: int, count: int) -> None:
    assert process_count(setting, cores) == count


@pytest.mark.parametrize(
    ("v2", "v1", "cores"),
    [
        pytest.param(None, None, 6, id="no limit"),
        pytest.param("max 100000\n", None, 6, id="no limit, said so"),
        pytest.param("200000 100000\n", None, 2, id="two cores"),
        pytest.param("150000 100000\n", None, 1, id="one and a half"),
        pytest.param("10000 100000\n", None, 1, id="a tenth"),
        pytest.param(None, ("300000\n", "100000\n"), 3, id="three cores, by the older files"),
        pytest.param(None, ("-1\n", "100000\n"), 6, id="no limit, by the older files"),
        pytest.param("what?", ("?", "0"), 6, id="not understood"),
    ],
)
def test_a_containers_limit_counts(
    v2: str | None, v1: tuple[str, str] | None, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "cpu.max", tmp_path / "quota", tmp_path / "period"]
    for path, text in zip(files, (v2, *(v1 or (None, None))), strict=True):
        if text is not None:
            path.write_text(text)
    monkeypatch.setattr(counting, "_QUOTAS", files[:1])
    monkeypatch.setattr(counting, "_QUOTA_V1", files[1:])
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(6)))
    assert usable_cores() == cores


def test_by_default_the_pipelines_process_decodes() -> None:
    text = "warehouse: /lake\nsource: {type: kafka, bootstrap_servers: b, topics: t}\ntables: [{name: shop.orders}]"
    assert decode_processes(parse_config(text, "p.yaml", pipeline="p")) == 0


@pytest.mark.parametrize("wrong", ["-1", "65", "all", "1.5"])
def test_another_value_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match="decode_processes"):
        config(wrong)


def test_ids_of_mongodb_stay_in_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "usable_cores", lambda: 4)
    assert decode_processes(config("auto")) == 3
    assert decode_processes(config("auto", "debezium-bson")) == 0
    assert decode_processes(config("0", "debezium-bson")) == 0
    with pytest.raises(ConfigError, match="compared over all partitions, which one process does"):
        config("2", "debezium-bson")
