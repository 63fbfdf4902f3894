"""The files of one bucket as a merge tree: level 0 has overlapping files, each level above is one sorted run.

Source: Java `mergetree/Levels.java`, `mergetree/LevelSortedRun.java`; vectors `levels.json`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from tidelake.storage.commit.conflicts import first_overlap
from tidelake.storage.files.data_file import DataFileMeta
from tidelake.storage.merge.sorted_run import key_ranges
from tidelake.storage.model.types import DataType


@dataclass(frozen=True, slots=True)
class LevelSortedRun:
    """Files of one level that don't overlap, in key order. Each file of level 0 is its own run."""

    level: int
    files: tuple[DataFileMeta, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.file_size for file in self.files)


@dataclass(frozen=True)
class Levels:
    """The levels of one bucket. Immutable: `updated` returns the next state.

    runs: newest first: level 0, then every level that has files
    key_types: of the trimmed primary key
    num_levels: the number of levels, level 0 and empty levels included
    """

    runs: tuple[LevelSortedRun, ...]
    key_types: tuple[DataType, ...]
    num_levels: int

    @classmethod
    def of(cls, files: Iterable[DataFileMeta], key_types: Sequence[DataType], num_levels: int) -> Levels:
        """Return the levels of the files.

        num_levels: from the table's options; larger if a file is on a higher level (the option was lowered).

        Raises ValueError if files above level 0 overlap.
        """
        by_level: dict[int, list[DataFileMeta]] = defaultdict(list)
        for file in files:
            by_level[file.level].append(file)
        runs = [LevelSortedRun(0, (file,)) for file in sorted(by_level.pop(0, ()), key=_newest_first)]
        for level, of_level in sorted(by_level.items()):
            if len(of_level) == 1:  # as in most small buckets: no keys have to be compared
                runs.append(LevelSortedRun(level, (of_level[0],)))
                continue
            ranges = key_ranges(of_level, key_types)
            if (overlap := first_overlap(ranges)) is not None:
                names = " and ".join(file.file_name for file in overlap)
                raise ValueError(f"files {names} overlap, and both are on level {level}")
            runs.append(LevelSortedRun(level, tuple(r.file for r in sorted(ranges, key=lambda r: r.min_key))))
        return cls(tuple(runs), tuple(key_types), max(num_levels, *(level + 1 for level in (0, *by_level))))

    @property
    def max_level(self) -> int:
        return self.num_levels - 1

    @cached_property
    def files(self) -> tuple[DataFileMeta, ...]:
        return tuple(file for run in self.runs for file in run.files)

    @property
    def upper_places(self) -> frozenset[tuple[int, str]]:
        """The places of all files above level 0, in which compactions look up rows."""
        return frozenset(file.place for run in self.runs if run.level > 0 for file in run.files)

    @property
    def highest_level(self) -> int:
        """The highest level with files; -1 for an empty bucket."""
        return self.runs[-1].level if self.runs else -1

    def updated(self, before: Iterable[DataFileMeta] = (), after: Iterable[DataFileMeta] = ()) -> Levels:
        """Return the levels without the files of `before` and with those of `after`. An upgraded file is in both.

        Raises ValueError if files above level 0 would overlap.
        """
        removed = {file.place for file in before}
        kept = [file for file in self.files if file.place not in removed]
        return Levels.of([*kept, *after], self.key_types, self.num_levels)


def _newest_first(file: DataFileMeta) -> tuple[int, int, int, str]:
    """Return the sort key. The first number decides, unless several writers used the same sequence numbers."""
    return -file.max_sequence_number, file.min_sequence_number, file.creation_time_ms or 0, file.file_name
