"""One of several processes that commit to one table concurrently: `python -m tests.crash.racer JOB`.

The process prints "ready", waits for a line, commits, and prints the ids of its snapshots. JOB is JSON:

warehouse: path of the warehouse.
options: options of the store.
who: number of the process, 0 to 7.
commits: number of commits.
shared: whether all processes write the same keys.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

import pyarrow as pa

import tidelake
from tidelake.errors import CommitConflict

NAME: Final = "db.t"
SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string()), ("at", pa.int64())])
BUCKETS: Final = 8
SHARED_KEYS: Final = 5


def rows_of(who: int, number: int, *, shared: bool) -> list[dict[str, Any]]:
    """Returns the two rows of a process in its commit `number`.

    They are in the process's own bucket (k mod 8), or have the same keys as those of all processes.
    """
    numbers = [2 * number, 2 * number + 1]
    at = number * BUCKETS + who
    keys = [n % SHARED_KEYS if shared else n * BUCKETS + who for n in numbers]
    return [{"k": key, "v": f"{who}-{number}", "at": at} for key in keys]


def main() -> None:
    job = json.loads(sys.argv[1])
    table = tidelake.open_catalog(job["warehouse"], **job["options"]).table(NAME)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    snapshots: list[int | None] = []
    with table.writer(commit_user=f"racer-{job['who']}") as writer:
        for number in range(job["commits"]):
            writer.write(pa.Table.from_pylist(rows_of(job["who"], number, shared=job["shared"]), SCHEMA))
            while len(snapshots) == number:
                try:
                    snapshots.append(writer.commit(number))
                except CommitConflict as error:  # after too many lost races the error says "commit again"
                    if "Commit again" not in str(error):
                        raise
    sys.stdout.write(json.dumps(snapshots) + "\n")


if __name__ == "__main__":
    main()
