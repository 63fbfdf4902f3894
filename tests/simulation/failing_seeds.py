"""Seeds that failed once. Three of them run with each `make test`, all with `make test-interop`."""

from __future__ import annotations

from typing import Final

# (seed, operations, what it found). A later change of the simulation gives a seed another history.
FAILED_ONCE: Final[tuple[tuple[int, int, str], ...]] = (
    (10, 1_500, "a raised highest level made full-compaction announce all rows again"),
    (12, 1_000, "a commit beside an expiry was told of a corrupt file instead of a conflict"),
    (3, 600, "a start beside another start of the pipeline was told of a rollback"),
    (26, 1_000, "an orphan cleaner beside an expiry was told of a corrupt file"),
    (317, 600, "a compaction beside an expiry was taken for replaced, and a live snapshot was deleted"),
    (363, 600, "a compaction that came too late withdrew the rows before it, and their manifests were deleted"),
    (35, 1_000, "an overwrite wrote a changelog that no snapshot names"),
    (87, 600, "a follower that began before a column became wider got wrapped numbers"),
    (113, 600, "a record that retention deleted kept newer dead letters of its partition from being replayed"),
    (126, 600, "a checkpoint that failed while a table left the quarantine blocked the pipeline for ever"),
    (133, 600, "a dead letter of this moment made a replay take an older one for superseded"),
    (7, 600, "a commit whose base expired, too, while buckets were compared, was told of a corrupt file"),
    (22, 4_000, "a tag's deletion that slept deleted files of newer snapshots"),
    (204, 4_000, "a start that had listed the partitions before another process read new ones was told of a new topic"),
    (8, 4_000, "a dead letter that a replay could no longer decide got the id of that replay, as if it were written"),
    (166, 4_000, "a replay overwrote newer rows: it read their records with the columns that the table had before"),
    (159, 4_000, "a process that another one fenced during a bootstrap ended with an illegal transition, too"),
    (259, 4_000, "a commit that was repeated after its snapshot had expired was published again, with deleted files"),
    (236, 4_000, "a fast-forward to a second branch left snapshots of the first one below those of the second"),
    (230, 4_000, "an expiry that slept after reading the consumers deleted snapshots that a new one had to read"),
)
