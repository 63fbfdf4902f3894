"""How many processes decode for a pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final, Literal

from tidelake.ingest.formats.registry import capabilities_of
from tidelake.ingest.settings import Config

_MAX: Final = 4  # four processes decode faster than one writes
_QUOTAS: Final = (Path("/sys/fs/cgroup/cpu.max"),)
_QUOTA_V1: Final = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def decode_processes(config: Config) -> int:
    """Return how many processes decode for a pipeline. 0: its own process does."""
    if capabilities_of(config.format).has_document_ids:
        return 0  # `auto`; a number is refused, as ids are compared over all partitions
    return process_count(config.source.decode_processes)


def process_count(setting: Literal["auto"] | int, cores: int | None = None) -> int:
    """Return the number of processes that a setting means. 0: the pipeline's process decodes.

    auto: a process for each core but the pipeline's own, so that nothing changes with one core.
    cores: default: those that this process may use.
    """
    if setting != "auto":
        return setting
    return max(0, min((usable_cores() if cores is None else cores) - 1, _MAX))


def usable_cores() -> int:
    """Return how many cores this process may use: a container's limit counts, too; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min([cores, *(int(limit) for limit in _quotas())]))


def _quotas() -> Iterable[float]:
    """Yield the cores that the process's control group may use, if it has a limit."""
    for path in _QUOTAS:
        yield from _cores(_text(path).split())
    yield from _cores([_text(path).strip() for path in _QUOTA_V1])


def _cores(quota_and_period: list[str]) -> Iterable[float]:
    if len(quota_and_period) == 2 and all(text.isdigit() for text in quota_and_period):
        quota, period = map(int, quota_and_period)
        yield quota / max(1, period)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except OSError:
        return ""
