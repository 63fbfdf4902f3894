"""Measures what each dependency and each extra costs, and fills the tables of docs/installing.md.

Run it by a Python whose environment has the wheel and every extra to measure, and nothing that hides a dependency:

    python docs/dependency_costs.py

An extra that is not installed there keeps no figures: its row says "not measured".
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = Path(__file__).parent / "installing.md"
_RUNS: Final = 7

# The module whose import is measured, and what it is for. tests/test_docs.py compares the names with pyproject.toml.
PURPOSES: Final = {
    "aiohttp": ("aiohttp.web", "the port of `metrics`, and `tidelake serve rest -w lake`"),
    "aiokafka": ("aiokafka", "pipelines that read Kafka"),
    "crc32c": ("crc32c", "checksums of Kafka's record batches"),
    "cramjam": ("cramjam", "snappy in manifests of other engines and in records of Kafka"),
    "fastavro": ("fastavro", "manifests: no table can be read without them"),
    "msgspec": ("msgspec", "snapshots, schemas, settings, change records"),
    "numpy": ("numpy", "keys and rows as columns"),
    "obstore": ("obstore", "object stores"),
    "prometheus-client": ("prometheus_client", "`/metrics` of a pipeline"),
    "pyarrow": ("pyarrow", "columns in memory; Parquet and ORC"),
    "pyroaring": ("pyroaring", "deletion vectors and bitmap indexes"),
    "pyyaml": ("yaml", "the configuration of a pipeline"),
    "rich": ("rich.console", "tables and colours in a terminal"),
    "shtab": ("shtab", "`tidelake completion bash`"),
    "sqlglot": ("sqlglot", "DDL of sources, queries of materialized tables, SQL on Spark"),
    "structlog": ("structlog", "the log of a pipeline"),
    "urllib3": ("urllib3", "REST catalogs, schema registries, access tokens"),
    "xxhash": ("xxhash", "Bloom filters"),
    "zstandard": ("zstandard", "manifests, spill files, change logs"),
}
EXTRAS: Final = {
    "jdbc": "catalogs in a database: SQLite, PostgreSQL",
    "hive": "catalogs in a Hive metastore",
    "hdfs": "tables in HDFS",
    "aws": "profiles, SSO and assumed roles of AWS",
    "msk": "Kafka of Amazon MSK with IAM",
    "sketches": "the aggregate functions `theta_sketch` and `hll_sketch`",
    "openlineage": "OpenLineage events of pipelines",
    "protobuf": "records in Protobuf",
    "telemetry": "spans of checkpoints and commits, for OpenTelemetry",
    "sql": "queries in the terminal, and materialized tables without Spark",
    "duckdb": "tables in DuckDB; the same packages as `sql`",
    "polars": "tables in Polars",
    "pandas": "tables in pandas",
    "ray": "tables in Ray Data",
    "torch": "tables in PyTorch",
    "spark": "pipelines and tables on Spark, with Spark itself",
}
STARTS: Final = {
    "`python -c pass`": ("-c", "pass"),
    "`python -c 'import tidelake'`": ("-c", "import tidelake"),
    "`tidelake --help`": ("-m", "tidelake", "--help"),
}


@cache
def megabytes(package: str) -> float:
    """Return the size of the files that a package installs, in MB. Compiled modules (`.pyc`) count as well."""
    files = metadata.distribution(package).files or []
    paths = {Path(str(file.locate())) for file in files}
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def closure(requirements: Iterable[str]) -> set[str]:
    """Return the packages that requirements bring here, by their normal names.

    Raises PackageNotFoundError if one is not installed.
    """
    found: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        needed = metadata.distribution(name).requires or []
        for inner in map(Requirement, needed):
            wanted = [{"extra": extra} for extra in ("", *requirement.extras)]
            is_needed = inner.marker is None or any(inner.marker.evaluate(one) for one in wanted)
            if is_needed and canonicalize_name(inner.name) not in found:
                waiting.append(inner)
        found.add(name)
    return found


def milliseconds(arguments: Sequence[str]) -> float:
    """Return the median CPU time of a new process of this Python, in ms. The first run is not counted: it compiles."""
    times_ms = []
    for _ in range(1 + _RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times_ms.append(1000 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime))
    return statistics.median(times_ms[1:])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [header, ["---"] * len(header), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def measured(project: dict[str, object]) -> str:
    base_texts: list[str] = project["dependencies"]  # type: ignore[assignment]
    extras: dict[str, list[str]] = project["optional-dependencies"]  # type: ignore[assignment]
    idle_ms = milliseconds(["-c", "pass"])
    base = closure(base_texts)
    rows = []
    for text in base_texts:
        name = canonicalize_name(Requirement(text).name)
        others = closure([other for other in base_texts if canonicalize_name(Requirement(other).name) != name])
        alone = closure([text]) - others  # what goes if only this dependency goes
        size = sum(map(megabytes, alone | {name}))
        module, purpose = PURPOSES[name]
        import_ms = max(milliseconds(["-c", f"import {module}"]) - idle_ms, 0)
        rows.append((size, [f"`{name}`", purpose, f"{size:.1f}", f"{import_ms:.0f}"]))
    rows.sort(key=lambda row: -row[0])
    total = sum(map(megabytes, base | {"tidelake"}))
    lines = table(["Package", "For", "MB", "import, CPU ms"], [row for _, row in rows])
    own = megabytes("tidelake")
    lines += ["", f"With Tidelake ({own:.0f} MB) and what several of these bring: **{total:.0f} MB**."]
    lines += ["", "Each extra adds to that:", ""]
    added = []
    for extra, purpose in EXTRAS.items():
        try:
            packages = closure(extras[extra]) - base
            size_text = f"{sum(map(megabytes, packages)):.0f}"
        except metadata.PackageNotFoundError:
            size_text = "not measured"
        added.append([f"`{extra}`", purpose, size_text])
    lines += table(["Extra", "For", "MB"], added)
    starts = [[name, f"{milliseconds(arguments):.0f}"] for name, arguments in STARTS.items()]
    lines += ["", "A new process:", "", *table(["", "CPU ms"], starts)]
    return "\n".join(lines)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    begin, end = "<!-- measured by docs/dependency_costs.py -->", "<!-- end -->"
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(begin)
    after = rest.partition(end)[2]
    PAGE.write_text(f"{before}{begin}\n\n{measured(project)}\n\n{end}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
