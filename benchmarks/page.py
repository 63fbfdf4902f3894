"""Writes docs/benchmarks.md: the results of a whole run, and the machine and versions that it used."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

from benchmarks.sections import PageSection, Plan

_OUR_LIBRARIES: Final = ("tidelake", "pyarrow", "numpy", "msgspec")

_SECTION: Final = "\n\n## "
_HEAD: Final = """\
# Benchmarks

`make bench` (`python -m benchmarks`) generates this page. Don't edit it.

The page shows rows per CPU-second and peak memory. CPU time is user and system time of the whole process with all its
threads. Peak memory is the most memory that the process held at any time. Contenders take turns, each run in a new
process. Ratios are medians over neighbouring runs. Compare only figures of one page, never those of two machines. No
test depends on these figures.
"""


def page(sections: Sequence[PageSection], plan: Plan) -> str:
    facts = "\n".join(f"- {name}: {fact}" for name, fact in _facts(sections, plan))
    return "\n\n".join([f"{_HEAD}\n{facts}", *(section.markdown() for section in sections)]) + "\n"


def with_sections(page_text: str, sections: Sequence[PageSection], plan: Plan) -> str:
    """Return the page with these sections. They replace sections with the same title, or are added at the end.

    Each says that it was measured separately from the others.
    """
    head, *parts = page_text.rstrip("\n").split(_SECTION)
    by_title = {part.partition("\n")[0]: part for part in parts}
    load = os.getloadavg()[-1]
    note = (
        f"Measured separately from the rest of this page on {datetime.now(UTC):%Y-%m-%d}, {plan.pairs} runs of each "
        f"contender in a close race; load {load:.0f} on {os.cpu_count()} cores."
    )
    for section in sections:
        reported = replace(section, about=f"{section.about} {note}").markdown().removeprefix("## ")
        by_title[section.title] = reported
    return _SECTION.join([head, *by_title.values()]) + "\n"


def _facts(sections: Iterable[PageSection], plan: Plan) -> Iterator[tuple[str, str]]:
    yield "date", datetime.now(UTC).strftime("%Y-%m-%d")
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30)
    yield "machine", f"{_processor()}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, {platform.system()}"
    runs = f"{plan.pairs}, or {plan.fewer_pairs} without a close race, if a section says nothing else"
    yield "runs of each contender", runs
    libraries = _named({name: version(name) for name in _OUR_LIBRARIES})
    yield "versions", ", ".join([f"Python {platform.python_version()}", *libraries])
    peers = [sample.details.get("versions", {}) for s in sections for of_one in s.samples.values() for sample in of_one]
    for versions in filter(None, peers):
        yield "versions of peers", ", ".join(_named(versions))
        return


def _named(versions: Mapping[str, str]) -> list[str]:
    return [f"{name} {number}" for name, number in versions.items()]


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
