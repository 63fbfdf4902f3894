"""`python -m benchmarks` measures rows per CPU-second and peak memory, also of other implementations.

Prints each section as Markdown when it is done. A run of all suites at the published size also writes
docs/benchmarks.md. With `--page` a run of some suites replaces only their sections.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import (
    all_cores,
    bootstrap,
    busy_tables,
    changelog,
    changelog_growth,
    commits,
    compaction,
    dynamic_buckets,
    exactly_once,
    expiring_commits,
    file_indexes,
    flush,
    following,
    frames,
    from_kafka,
    ingest_folder,
    ingest_kafka,
    many_files,
    many_tables,
    merge_read,
    orphan_search,
    pipeline_bootstrap,
    restart,
    spark_engine,
    startup,
    steady,
    stores,
    vectors_read,
    visible_latency,
)
from benchmarks.contest import REPOSITORY
from benchmarks.page import page, with_sections
from benchmarks.sections import PageSection, Plan, failure
from tests.support.tools import TOOLS, build_tool

SUITES: Final[dict[str, Callable[[Plan], Iterable[PageSection]]]] = {
    "from-kafka": from_kafka.sections,
    "all-cores": all_cores.sections,
    "visible-latency": visible_latency.sections,
    "w1": partial(flush.sections, workload="w1"),
    "w2": partial(flush.sections, workload="w2"),
    "buckets": dynamic_buckets.sections,
    "w4": merge_read.sections,
    "compact": compaction.sections,
    "bootstrap": bootstrap.sections,
    "pipeline-bootstrap": pipeline_bootstrap.sections,
    "changelog": changelog.sections,
    "changelog-growth": changelog_growth.sections,
    "vectors": vectors_read.sections,
    "frames": frames.sections,
    "ingest": ingest_folder.sections,
    "kafka": ingest_kafka.sections,
    "steady": steady.sections,
    "commit": commits.sections,
    "stores": stores.sections,
    "following": following.sections,
    "expiring": expiring_commits.sections,
    "restart": restart.sections,
    "many-tables": many_tables.sections,
    "busy-tables": busy_tables.sections,
    "exactly-once": exactly_once.sections,
    "spark": spark_engine.sections,
    "index-lookup": file_indexes.lookup_sections,
    "index-flush": file_indexes.flush_sections,
    "files": many_files.sections,
    "orphans": orphan_search.sections,
    "help": startup.sections,
}
PEERS: Final = ("rust", "java", "flink", "pypaimon")
PAGE: Final = REPOSITORY / "docs" / "benchmarks.md"


def main(arguments: list[str] | None = None) -> int:
    """Return exit code 1 if a suite failed. The other suites still run."""
    options = _options(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="tidelake-bench-"))
    peers = frozenset(options.peers)
    try:
        plan = Plan(
            scale=options.scale,
            pairs=options.pairs,
            data=options.data,
            scratch=scratch,
            pypaimon=build_tool(TOOLS / "pypaimon" / "build") if peers - {"java", "flink"} else None,
            peers=peers,
        )
        found = list(_report(section for name in options.only for section in _sections(name, plan)))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(section) for section in found], indent=1) + "\n", encoding="utf-8")
    if options.scale == 1.0 and set(options.only) == set(SUITES):
        PAGE.write_text(page(found, plan), encoding="utf-8")
        sys.stdout.write(f"Written to {PAGE.relative_to(REPOSITORY)}\n")
    elif options.page:
        measured = [section for section in found if not section.is_failure]
        PAGE.write_text(with_sections(PAGE.read_text(encoding="utf-8"), measured, plan), encoding="utf-8")
        sys.stdout.write(f"{len(measured)} sections of {PAGE.relative_to(REPOSITORY)} replaced\n")
    return int(any(section.is_failure for section in found))


def _sections(name: str, plan: Plan) -> Iterator[PageSection]:
    """Yield the sections of a suite. If it fails, the last section contains the error."""
    try:
        yield from SUITES[name](plan)
    except Exception:
        yield failure(f"Suite {name} failed", traceback.format_exc())


def _report(sections: Iterable[PageSection]) -> Iterator[PageSection]:
    for section in sections:
        sys.stdout.write(f"{section.markdown()}\n\n")
        sys.stdout.flush()
        yield section


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)

    def some_of(known: Iterable[str]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            names = [name for name in text.split(",") if name]
            if unknown := [name for name in names if name not in known]:
                raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
            return names

        return parse

    parser.add_argument("--only", type=some_of(SUITES), default=list(SUITES), help=f"of {','.join(SUITES)}")
    parser.add_argument(
        "--page", action="store_true", help="replace the sections of these suites in docs/benchmarks.md"
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the published sizes (default: 1.0)")
    parser.add_argument("--pairs", type=int, default=7, help="number of runs of each contender (default: 7)")
    parser.add_argument("--peers", type=some_of(PEERS), default=["rust", "java", "flink"], help=f"of {','.join(PEERS)}")
    parser.add_argument("--json", type=Path, help="file for all single measurements")
    parser.add_argument("--data", type=Path, default=REPOSITORY / ".cache" / "benchmarks", help="where rows are kept")
    options = parser.parse_args(arguments)
    if options.page and options.scale != 1.0:
        parser.error("--page shows figures of the published sizes: leave --scale out")
    return options


if __name__ == "__main__":
    sys.exit(main())
