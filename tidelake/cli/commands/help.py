"""`tidelake help`: pages of the documentation, codes of errors, and the help of commands, without a network."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, Final

from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

SUMMARY: Final = "show a page of the documentation, what an error means, or the options of a command"
DETAILS: Final = """\
Without a word it lists the pages. They come with the package: no network is needed."""
EXAMPLES: Final = "tidelake help PositionRefused\ntidelake help runbook#lag-grows\ntidelake help table explain"


def show(out: CommandOutput, words: Sequence[str], command_words: Callable[[], set[tuple[str, ...]]]) -> bool:
    """Show a page, a section or a code. Returns whether the words name a command instead, whose help is to be shown.

    command_words: returns the words of each command

    Raises BadInput for words that are none of these.
    """
    from tidelake.cli.pages import codes, page_names

    if not words:
        _list_pages(out)
        return False
    page, _, anchor = words[0].removeprefix("docs/").replace(".md", "").partition("#")
    known = {code.lower(): code for code in codes()}
    if len(words) == 1 and page in page_names():
        _show_page(out, page, anchor)
    elif len(words) == 1 and page.lower() in known:
        _explain(out, known[page.lower()])
    elif tuple(words) in (commands := command_words()):
        return True
    else:
        said = " ".join(words)
        close = get_close_matches(said, [*page_names(), *known.values(), *map(" ".join, commands)], n=1)
        hint = f"did you mean `tidelake help {close[0]}`? " if close else ""
        raise BadInput(f"no page, code or command {said!r}; {hint}`tidelake help` lists the pages")
    return False


def _list_pages(out: CommandOutput) -> None:
    from tidelake.cli.pages import page_names, title_of

    titles = {name: title_of(name) for name in page_names()}
    if out.is_json:
        out.document({"pages": titles})
        return
    widest = max(map(len, titles))
    lines = [f"  {name:{widest}}  {title}" for name, title in titles.items()]
    out.text(
        "\n".join(["Pages (`tidelake help PAGE` shows one, `tidelake help PAGE#SECTION` a part of it):", *lines, ""])
    )
    out.text("Begin with `tidelake help tutorial`. `tidelake help CODE` explains an error, such as PositionRefused.")


def _show_page(out: CommandOutput, page: str, anchor: str) -> None:
    from tidelake.cli.pages import page_text, section_text

    text = section_text(page, anchor) if anchor else page_text(page)
    if out.is_json:
        out.document({"page": page, "section": anchor or None, "text": text})
    else:
        _print_markdown(out, text)


def _explain(out: CommandOutput, code: str) -> None:
    from tidelake.cli.pages import PAGE_OF_ERROR, meaning_of, page_text, section_text

    found = meaning_of(code)
    assert found is not None, code
    consequence, meaning = found[0], re.sub(r" \[More\]\([^)]*\)$", "", found[1])
    place = PAGE_OF_ERROR.get(code)
    document: dict[str, Any] = {"code": code, "meaning": meaning, "page": place, "text": None}
    label = "exit code" if consequence.isdigit() else "becomes a dead letter"
    lines = [f"**{code}** · {label}: {consequence}", "", meaning, ""]
    if place is not None:
        page, _, anchor = place.partition("#")
        # A whole page would hide the meaning above it: its beginning says what it is about.
        document["text"] = section_text(page, anchor) if anchor else _beginning(page_text(page))
        lines += [document["text"], "", f"The page: `tidelake help {page}`"]
    if out.is_json:
        out.document(document)
    else:
        _print_markdown(out, "\n".join(lines) + "\n")


def _beginning(text: str) -> str:
    return re.split(r"^## ", text, maxsplit=1, flags=re.MULTILINE)[0].strip()


def _print_markdown(out: CommandOutput, text: str) -> None:
    if not sys.stdout.isatty():
        out.text(text.rstrip("\n"))
        return
    from rich.markdown import Markdown

    # Links lead to files beside the page, which a terminal can't open: their texts are enough.
    out.console.print(Markdown(re.sub(r"(?<!!)\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1", text)))
