"""The benchmarks run without errors, without peers, and with too few rows for meaningful figures."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks import changelog_growth, compaction, flush, merge_read
from benchmarks.__main__ import SUITES, main
from benchmarks.contest import REPOSITORY
from benchmarks.page import page, with_sections
from benchmarks.sections import Goal, PageSection, Plan
from tests.support.levels import is_of_the_day

IN_QUICK_RUNS: Final = "w1"  # needs neither a broker nor much time


@pytest.fixture(autouse=True)
def _one_variant_each(monkeypatch: pytest.MonkeyPatch) -> None:
    for workload in ("w1", "w2"):
        monkeypatch.setitem(flush.VARIANTS, workload, flush.VARIANTS[workload][-1:])
    for module in (merge_read, compaction):
        monkeypatch.setattr(module, "VARIANTS", module.VARIANTS[-1:])
    monkeypatch.setattr(changelog_growth, "MILLIONS", (1, changelog_growth.PEAK_MILLIONS))


def suites() -> Iterator[Any]:
    """Returns the quick suite first. `make test-interop` runs a third of the others, a different third each day."""
    for number, name in enumerate(sorted(SUITES, key=lambda name: name != IN_QUICK_RUNS)):
        if name == "spark":  # six sessions in sequence
            yield pytest.param(name, marks=[pytest.mark.needs("Spark"), pytest.mark.long, pytest.mark.timeout(900)])
        else:
            is_long = number > 0 and not is_of_the_day(number, 3)
            yield pytest.param(name, marks=[pytest.mark.long] if is_long else [])


@pytest.mark.exhaustive
@pytest.mark.parametrize("suite", list(suites()))
def test_a_suite_measures_and_prints_its_sections(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    less = ["--scale", "0.01", "--pairs", "1", "--peers", ""]
    assert main(["--only", suite, *less, "--data", f"{tmp_path}", "--json", f"{found}"]) == 0
    sections = json.loads(found.read_text())
    assert sections
    assert all(section["lines"] for section in sections)
    titles = [line.removeprefix("## ") for line in capsys.readouterr().out.split("\n") if line.startswith("## ")]
    assert titles == [section["title"] for section in sections]


def test_a_failed_suite_is_reported_between_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(plan: Plan) -> Iterator[PageSection]:
        yield PageSection("First half", "Worked.", ["", "runs"], [["ours", "7"]])
        raise OSError("the disk is gone")

    monkeypatch.setitem(SUITES, "broken", broken)
    less = ["--pairs", "1", "--peers", "", "--data", f"{tmp_path}"]
    assert main(["--only", "broken,help", *less]) == 1
    reported = capsys.readouterr().out
    titles = [line for line in reported.splitlines() if line.startswith("## ")]
    assert titles == ["## First half", "## Suite broken failed", "## Start-up"]
    assert "the disk is gone" in reported


def test_the_page_shows_each_target_and_its_measurement() -> None:
    targets = [Goal("a rate ≥ 2", "3", is_met=True), Goal("a peak ≤ 5", "7", is_met=False)]
    section = PageSection("Title", "About it.", ["", "runs"], [["ours", "7"]], targets)
    text = page([section], Plan(1.0, 7, Path("data"), Path("scratch"), None, frozenset()))
    assert text.startswith("# Benchmarks\n")
    assert text.endswith(
        "## Title\n\nAbout it.\n\n"
        "|  | runs |\n| --- | ---: |\n| ours | 7 |\n\n"
        "| target | found | reached |\n| --- | ---: | ---: |\n| a rate ≥ 2 | 3 | yes |\n| a peak ≤ 5 | 7 | **no** |\n"
    )


def test_sections_measured_separately_replace_older_ones_and_are_marked() -> None:
    plan = Plan(1.0, 7, Path("data"), Path("scratch"), None, frozenset())
    before = page([PageSection(title, "Old.", [], []) for title in ("One", "Two", "Three")], plan)
    after = with_sections(before, [PageSection(title, "New.", [], []) for title in ("Two", "Four")], plan)
    assert re.findall(r"^## (\w+)\n\n(\w+)\.", after, re.MULTILINE) == [
        ("One", "Old"),
        ("Two", "New"),
        ("Three", "Old"),
        ("Four", "New"),
    ]
    assert after.count("Measured separately from the rest of this page on ") == 2
    assert after.partition("## One")[0] == before.partition("## One")[0]


def test_a_scaled_down_run_cannot_write_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "help", "--scale", "0.1", "--page"])
    assert "leave --scale out" in capsys.readouterr().err


def test_kafka_is_measured_after_the_folder_and_its_figure_is_in_the_readme() -> None:
    """A reader who uses a broker must not mistake the folder's figure for that of Kafka."""
    suites = list(SUITES)
    assert suites.index("kafka") == suites.index("ingest") + 1
    reported = (REPOSITORY / "README.md").read_text(encoding="utf-8").partition("## How fast")[2]
    assert re.search(r"From Kafka\b[^.]*\d+,\d{3}", reported)
