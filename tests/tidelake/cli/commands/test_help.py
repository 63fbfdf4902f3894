"""`tidelake help`: pages, codes of errors and commands, without a network."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import Call
from tests.tidelake.cli.test_arguments import COMMANDS
from tidelake.cli.pages import PAGE_OF_ERROR, codes, page_text, section_text

DOCS = Path(__file__).parents[4] / "docs"


def test_every_page_is_listed_with_its_title(call: Call) -> None:
    listed = call("help", "--json").document["pages"]
    assert set(listed) == {path.stem for path in DOCS.glob("*.md")} - {"README"}
    assert listed["runbook"] == "Runbook"
    assert "  runbook  " in call("help").out


@pytest.mark.parametrize("word", ["runbook", "runbook.md", "docs/runbook.md"])
def test_a_page_is_shown_by_its_name_or_as_a_text_names_it(call: Call, word: str) -> None:
    assert call("help", word).out.strip() == (DOCS / "runbook.md").read_text(encoding="utf-8").strip()


def test_a_section_ends_where_the_next_one_begins(call: Call) -> None:
    said = call("help", "runbook#the-disk-is-full")
    assert said.out.startswith("## The disk is full\n")
    assert "Start the pipeline again." in said.out
    assert "## Another broker or topic" not in said.out


def test_a_line_of_code_is_no_heading() -> None:
    """A comment of YAML begins like a heading of Markdown."""
    assert section_text("spark", "a-cluster").count("```") % 2 == 0


@pytest.mark.parametrize("code", sorted(PAGE_OF_ERROR))
def test_every_code_has_a_meaning_and_a_place_that_exists(call: Call, code: str) -> None:
    page, _, anchor = PAGE_OF_ERROR[code].partition("#")
    text = section_text(page, anchor) if anchor else page_text(page)
    said = call("help", code)
    assert said.code == 0
    assert said.out.startswith(f"**{code}** · ")
    assert text.splitlines()[0] in said.out
    document = call("help", code.lower(), "--json").document
    assert document["code"] == code
    assert document["meaning"]
    assert "[More]" not in document["meaning"]


def test_a_code_without_a_place_has_its_meaning(call: Call) -> None:
    assert set(PAGE_OF_ERROR) < set(codes())
    said = call("help", "UsageError")
    assert said.out.strip() == (
        "**UsageError** · exit code: 2\n\nEach argument is valid, but not all of them together."
    )


@pytest.mark.parametrize("words", [("table", "show"), ("demo",), ("ingest", "run")], ids=" ".join)
def test_a_command_has_the_same_help(call: Call, words: tuple[str, ...]) -> None:
    assert call("help", *words).out == COMMANDS[words].format_help()


@pytest.mark.parametrize("word", ["sql", "doctor"])
def test_a_page_with_the_name_of_a_command_is_shown_as_a_page(call: Call, word: str) -> None:
    assert call("help", word).out.strip() == page_text(word).strip()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(["runbok"], "did you mean `tidelake help runbook`?", id="a page"),
        pytest.param(["PositionRefusd"], "did you mean `tidelake help PositionRefused`?", id="a code"),
        pytest.param(["table", "shwo"], "did you mean `tidelake help table show`?", id="a command"),
        pytest.param(["runbook#the-disk"], "runbook has no section 'the-disk'; it has the-sources", id="a section"),
        pytest.param(["../README"], "no page, code or command '../README'", id="a path"),
    ],
)
def test_an_unknown_word_is_refused_with_what_was_meant(call: Call, words: list[str], said: str) -> None:
    result = call("help", *words)
    assert result.code == 1
    assert said in result.err


def test_pages_on_a_terminal_have_no_links_to_files(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    said = call("help", "runbook#the-sources-columns-changed")
    assert "configuration.md" not in said.out
    assert "schema_evolution" in said.out
