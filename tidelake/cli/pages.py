"""The pages of the documentation that come with the package: `tidelake help` shows them without a network.

A wheel holds the pages of docs/ in `tidelake/pages` (hatch_build.py). In a checkout they are read where they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import tidelake
from tidelake.errors import BadInput

PAGE_OF_ERROR: Final[Mapping[str, str]] = {
    "AccessDenied": "stores#logins",
    "BatchOutdated": "spark#how-a-batch-is-written",
    "CommitConflict": "keeping-tables#several-writers",
    "CommitOutcomeUnknown": "writing-tables#commit-identifiers",
    "ConfigError": "configuration",
    "CorruptFile": "keeping-tables#recovering-from-lost-files",
    "DiskFull": "runbook#the-disk-is-full",
    "HistoryExpired": "keeping-tables#expiry",
    "NotYetCaughtUp": "quarantine",
    "PipelineUnreachable": "runbook#no-pipeline-answers",
    "PositionRefused": "positions#refusals",
    "QuarantineFull": "quarantine",
    "RecordRefused": "positions#one-record-stops-it",
    "RecoveryOutdated": "runbook#two-processes-of-one-pipeline",
    "RegistryUnavailable": "formats#debezium-avro",
    "ReloadRefused": "configuration#changing-a-running-pipeline",
    "SnapshotExpired": "reading-changes#consumers",
    "SourceUnavailable": "runbook#lag-grows",
    "StaleSequenceNumbers": "keeping-tables#several-writers",
    "StoppedAtOnce": "positions#after-a-start",
    "TableFailed": "quarantine",
    "TableNotInferred": "formats#what-a-record-does-not-say",
    "TablePaused": "quarantine#pausing-a-table",
    "TableUnusable": "quarantine",
    "WriterFenced": "runbook#two-processes-of-one-pipeline",
    "BAD_RECORD": "runbook#new-dead-letters",
    "UNKNOWN_VALUE": "positions#one-record-stops-it",
    "UNKNOWN_COLUMN": "runbook#the-sources-columns-changed",
    "NARROW_COLUMN": "runbook#the-sources-columns-changed",
    "WIDER_KEY": "schema-evolution#wider-keys",
    "SCHEMA_CHANGE": "schema-evolution#what-can-change",
    "TRUNCATE": "positions#one-record-stops-it",
}
"""Where the code of an error or a record is explained: `page` or `page#section`. Codes that are not here say all."""

_HEADING: Final = re.compile(r"^(#+) (.+)$")


def page_names() -> list[str]:
    return sorted(path.stem for path in _folder().glob("*.md") if path.stem != "README")


def page_text(name: str) -> str:
    """Return a page as Markdown. Raises BadInput if there is none of that name."""
    path = _folder() / f"{name}.md"
    if name not in page_names():
        raise BadInput(f"no page {name!r}. `tidelake help` lists the pages")
    return path.read_text(encoding="utf-8")


def title_of(name: str) -> str:
    return page_text(name).split("\n", 1)[0].removeprefix("# ")


def section_text(name: str, anchor: str) -> str:
    """Return a section of a page, with its heading and the sections below it.

    anchor: the heading as in a link, `the-disk-is-full`

    Raises BadInput if there is none.
    """
    lines = page_text(name).splitlines()
    anchors: list[str] = []
    found: list[str] = []
    depth = 0
    is_code = False
    for line in lines:
        is_code ^= line.startswith("```")
        heading = None if is_code else _HEADING.match(line)
        if heading is not None:
            anchors.append(anchor_of(heading[2]))
            if depth and len(heading[1]) <= depth:
                break
            if not depth and anchors[-1] == anchor:
                depth = len(heading[1])
        if depth:
            found.append(line)
    if not found:
        raise BadInput(f"page {name} has no section {anchor!r}; it has {', '.join(anchors[1:]) or 'none'}")
    return "\n".join(found).strip() + "\n"


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def meaning_of(code: str) -> tuple[str, str] | None:
    """Return two cells of a code in the page of errors: the exit code, or what becomes of the record; the meaning."""
    found = re.search(rf"^\| `{re.escape(code)}` \| ([^|]*) \| (.*) \|$", page_text("errors"), re.MULTILINE)
    return None if found is None else (found[1], found[2].replace("\\|", "|"))


def codes() -> list[str]:
    """Return the codes of errors and of records, in the order of their page."""
    return re.findall(r"^\| `([A-Za-z_]+)` \| ", page_text("errors"), re.MULTILINE)


def _folder() -> Path:
    package = Path(tidelake.__file__).parent
    installed = package / "pages"
    return installed if installed.is_dir() else package.parent / "docs"
