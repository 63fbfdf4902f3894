"""`tidelake table latency`: how long records took from their source into a table, from its snapshots alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import CatalogAddress, Commands, positive, table_command
from tidelake.cli.formatting import utc_text
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput

if TYPE_CHECKING:
    from tidelake.checkpoint.record_times import CommitLatency

_SNAPSHOTS: Final = 1_000
_PERCENTILES: Final = (50, 90, 99, 100)
_STEPS_MS: Final = (
    100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 120_000, 300_000, 600_000, 1_200_000, 3_600_000,
)  # fmt: skip
_BAR: Final = 40  # characters of the longest


def add_latency(verbs: Commands) -> None:
    parser = table_command(
        verbs,
        "latency",
        latency,
        "show how long records took from their source into the table",
        "From the time of a record (that of Kafka) to the snapshot with its row. Each snapshot of\n"
        "`tidelake ingest run` says the times of its oldest and newest record, so this also works after the process\n"
        "has ended.",
        example="tidelake table latency shop.orders -w lake",
    )
    parser.add_argument(
        "--limit",
        type=positive,
        metavar="N",
        default=_SNAPSHOTS,
        help=f"newest snapshots to read; default: {_SNAPSHOTS:,}",
    )


def latency(out: CommandOutput, *, name: str, catalog: CatalogAddress, limit: int) -> None:
    """Print percentiles and a histogram. Raises BadInput if no snapshot has the times of its records."""
    from tidelake.checkpoint.record_times import commit_latencies

    store = catalog.open().table(name).context.snapshots
    newest = store.latest()
    snapshots = [] if newest is None else list(islice(store.backwards_from(newest), limit))[::-1]
    commits = list(commit_latencies(snapshots))
    if not commits:
        raise BadInput(
            f"no snapshot of {name} has the times of its records, of {len(snapshots):,} that were read. Snapshots of "
            "`tidelake ingest run` have them, if the records of the source have times"
        )
    if out.is_json:
        out.document(_document(commits))
        return
    span = f"{utc_text(commits[0].committed_at_ms)} to {utc_text(commits[-1].committed_at_ms)} (UTC)"
    out.text(f"{name}: {len(commits):,} commits, {span}\n")
    titles = [f"{'most' if p == 100 else f'p{p}':>10}" for p in _PERCENTILES]
    out.text(f"{'':16}{''.join(titles)}")
    for what, waits in (("oldest record", _oldest(commits)), ("newest record", _newest(commits))):
        out.text(f"{what:16}{''.join(f'{_time_text(_percentile(waits, p)):>10}' for p in _PERCENTILES)}")
    out.text("\nthe oldest record of each commit")
    counts = _histogram(commits)
    most = max(count for _, count in counts)
    for up_to_ms, count in counts:
        label = "more" if up_to_ms is None else f"≤ {_time_text(up_to_ms)}"
        out.text(f"{label:>12}  {'█' * -(-count * _BAR // most):{_BAR}}  {count:,}")


def _document(commits: Sequence[CommitLatency]) -> dict[str, Any]:
    of = {"oldest": _oldest(commits), "newest": _newest(commits)}
    return {
        "commits": len(commits),
        "first_committed_at_ms": commits[0].committed_at_ms,
        "last_committed_at_ms": commits[-1].committed_at_ms,
        **{name: {f"p{p}_ms": _percentile(waits, p) for p in _PERCENTILES} for name, waits in of.items()},
        "histogram": [{"up_to_ms": up_to_ms, "commits": count} for up_to_ms, count in _histogram(commits)],
    }


def _oldest(commits: Sequence[CommitLatency]) -> list[int]:
    return sorted(commit.oldest_ms for commit in commits)


def _newest(commits: Sequence[CommitLatency]) -> list[int]:
    return sorted(commit.newest_ms for commit in commits)


def _percentile(ascending: Sequence[int], percent: int) -> int:
    """Return the smallest value that so many percent of all don't exceed."""
    return ascending[-(-len(ascending) * percent // 100) - 1]


def _histogram(commits: Sequence[CommitLatency]) -> list[tuple[int | None, int]]:
    """Return upper ends, and numbers of commits up to each and beyond the one before. From the first with any."""
    waits = _oldest(commits)
    ends = [*_STEPS_MS, None]
    counts, done = [], 0
    for end in ends:
        up_to = len(waits) if end is None else sum(wait <= end for wait in waits)
        counts.append((end, up_to - done))
        done = up_to
    first = next(n for n, (_, count) in enumerate(counts) if count)
    last = max(n for n, (_, count) in enumerate(counts) if count)
    return counts[first : last + 1]


def _time_text(time_ms: int) -> str:
    """Return a time such as `320 ms`, `4.1 s` or `12 min`."""
    if time_ms < 1_000:
        return f"{time_ms} ms"
    if time_ms < 60_000:
        return f"{time_ms / 1000:.1f} s".replace(".0 s", " s")
    if time_ms < 7_200_000:
        return f"{time_ms / 60_000:.0f} min"
    return f"{time_ms / 3_600_000:.0f} h"
