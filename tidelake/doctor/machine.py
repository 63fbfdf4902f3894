"""Checks of this machine: Python and libraries, memory, disk space, file descriptors."""

from __future__ import annotations

import os
import re
import sys
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Final

from tidelake.doctor.checks import Finding, Findings, counted, failed, ok, warning
from tidelake.ingest.settings import Config
from tidelake.storage.fileio.disk_space import DiskSpace

_CGROUP_ROOT: Final = Path("/sys/fs/cgroup")
_OWN_CGROUP: Final = Path("/proc/self/cgroup")
_UNLIMITED_BYTES: Final = 1 << 60  # cgroup v1 writes a number near 2**63 for "no limit"

PROCESS_BYTES: Final = 256 << 20  # Python, its libraries, and what one batch needs while it is decoded and encoded
DESCRIPTORS_OF_PROCESS: Final = 64  # its libraries, connections, and files that are read
DESCRIPTORS_OF_TABLE: Final = 16  # files that are written, spilled and compacted at once

_LOWER_BOUND: Final = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?:>=(?P<bound>[0-9.]+))?\s*$")


def check_versions() -> Findings:
    """Compare Python and the installed libraries with what this release needs."""
    findings: list[Finding] = []
    if not sys._is_gil_enabled() if hasattr(sys, "_is_gil_enabled") else False:
        findings.append(warning("Python runs without the GIL, which no test covers", "Use the usual build of Python"))
    names: list[str] = []
    for requirement in requires("tidelake") or ():
        found = None if ";" in requirement else _LOWER_BOUND.match(requirement)  # `;` marks those of an extra
        if found is None:
            continue
        name, bound = found["name"], found["bound"]
        names.append(name)
        try:
            installed = version(name)
        except PackageNotFoundError:
            findings.append(failed(f"{name} is not installed", f'pip install "{requirement}"'))
            continue
        if bound is not None and _release(installed) < _release(bound):
            findings.append(failed(f"{name} {installed} is older than {bound}", f'pip install "{requirement}"'))
    return findings or [ok(f"Python {sys.version.split()[0]}, {len(names)} libraries as tidelake {_own()} needs them")]


def _own() -> str:
    return version("tidelake")


def _release(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", re.match(r"[0-9.]*", text)[0]))  # type: ignore[index]


def check_kafka_client() -> Findings:
    """Check that this release of aiokafka has the internals that the Kafka source uses."""
    from tidelake.ingest.sources.kafka.client_check import AIOKAFKA
    from tidelake.ingest.sources.kafka.client_internals import check_aiokafka

    check_aiokafka()
    return [ok(f"aiokafka {AIOKAFKA}")]


def check_memory(config: Config, limit_bytes: int | None = None) -> Findings:
    """Compare the memory limit of the cgroup, or of the machine, with the budgets of the configuration.

    limit_bytes: replaces the limit
    """
    budget = config.write.memory_bytes + 2 * config.write.queue_bytes
    limit = memory_limit_bytes() if limit_bytes is None else limit_bytes
    needed = budget + PROCESS_BYTES
    text = f"{_mib(limit)} of memory; buffers and queues may take {_mib(budget)}, the process {_mib(PROCESS_BYTES)}"
    if limit <= budget:
        return [failed(text, _memory_remedy(limit))]
    return [warning(text, _memory_remedy(limit))] if limit < needed else [ok(text)]


def _memory_remedy(limit: int) -> str:
    fits = max(0, limit - PROCESS_BYTES)
    return (
        f"Raise the memory limit of the container, or lower `write.memory_bytes` and `write.queue_bytes` to "
        f"{_mib(fits)} in total (a queue counts twice)"
    )


def memory_limit_bytes(root: Path = _CGROUP_ROOT, own: Path = _OWN_CGROUP) -> int:
    """Return the smallest memory limit of this process's cgroups, or the memory of the machine.

    Source: the kernel's cgroup-v2.rst (`memory.max`) and cgroup-v1/memory.rst (`memory.limit_in_bytes`).
    """
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    try:
        lines = own.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        base, name = (root / "memory", "memory.limit_in_bytes") if controllers else (root, "memory.max")
        place = base / path.lstrip("/")
        for directory in (place, *place.parents):
            if not directory.is_relative_to(base):
                break
            try:
                text = (directory / name).read_text().strip()
            except OSError:
                continue  # in a container only its own part of the tree is mounted
            if text.isdecimal() and int(text) < _UNLIMITED_BYTES:
                limits.append(int(text))
    return min(limits)


def check_spill_space(config: Config, space: DiskSpace | None = None) -> Findings:
    """Check the space where rows go that don't fit into memory.

    space: replaces the file system of the directory
    """
    directory = str(config.write.spill_directory or tempfile.gettempdir())
    space = space or DiskSpace.of_path(directory)
    remedy = "Free space there, or set `write.spill_directory` to another disk"
    if space is None:
        return [failed(f"the spill directory {directory} can't be looked at", remedy)]
    place = directory
    while not os.path.exists(place):
        place = os.path.dirname(place)
    if not os.access(place, os.W_OK | os.X_OK):
        return [failed(f"the spill directory {directory} can't be written to", f"Allow it to this user: {place}")]
    text = f"{_mib(space.free_bytes)} free for spilled rows in {directory} (disk at {space.mounted_at})"
    if space.free_bytes < config.write.memory_bytes:
        return [failed(f"{text}, less than `write.memory_bytes`", remedy)]
    return [warning(text, remedy)] if space.free_bytes < 4 * config.write.memory_bytes else [ok(text)]


def check_descriptors(tables: int, limit: int | None = None) -> Findings:
    """Compare the limit of open files with what the tables may need.

    limit: replaces the limit of this process
    """
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0] if limit is None else limit
    needed = DESCRIPTORS_OF_PROCESS + DESCRIPTORS_OF_TABLE * tables
    if soft == resource.RLIM_INFINITY:
        return [ok("any number of open files")]
    text = f"{soft:,} open files are allowed; {counted(tables, 'table')} may need {needed:,}"
    remedy = f"ulimit -n {max(4096, needed)}, or LimitNOFILE= of the systemd unit"
    if soft < DESCRIPTORS_OF_PROCESS:
        return [failed(text, remedy)]
    return [warning(text, remedy)] if soft < needed else [ok(text)]


def _mib(nbytes: int) -> str:
    return f"{nbytes / (1 << 20):,.0f} MiB"
