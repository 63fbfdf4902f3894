"""The numbers of targets, by which a pipeline and its decoding processes name the same ones.

A target has a new number after each change of its table. A batch that was decoded with a number that isn't the table's
any more is decoded again.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from tidelake.errors import TidelakeError
from tidelake.ingest.formats.base import OpenedFormat, Target, TargetOf
from tidelake.ingest.formats.source_table import SourceTable

NO_TARGET: Final = 0
"""The number for source tables without a target."""

OUTDATED: Final = -1
"""A number that no target has: the target changed while a batch was decoded."""

NumberedTarget: TypeAlias = tuple[Target, tuple[Any, ...]]
"""A target, and what the configuration has for its table in each mapping of `DecoderSetup.by_table`."""

_KEPT_OF_A_TABLE: Final = 2  # the newest target, and the one before it, which batches on their way may have


@dataclass
class DecoderSetup:
    """What a process needs to decode like the pipeline. It is pickled as one object.

    format: the format of the records. It may use the mappings of `by_table`.
    by_table: mappings by the table's name that grow while the pipeline runs.
    """

    format: OpenedFormat
    by_table: tuple[MutableMapping[str, Any], ...] = ()

    def settings_of(self, table: str) -> tuple[Any, ...]:
        """Return what each mapping has for the table; None if it has nothing."""
        return tuple(mapping.get(table) for mapping in self.by_table)

    def learn(self, sent: NumberedTarget) -> Target:
        """Add what the pipeline has for a table, and return its target."""
        target, settings = sent
        for mapping, setting in zip(self.by_table, settings, strict=True):
            if setting is not None:
                mapping[target.name] = setting
        return target


@dataclass
class TargetNumbers:
    """Gives numbers to the targets of a pipeline.

    target_of: returns the current target of a source table.
    settings_of: see `DecoderSetup.settings_of`.
    """

    target_of: TargetOf
    settings_of: Callable[[str], tuple[Any, ...]]
    _numbers: dict[str, dict[int, Target]] = field(default_factory=dict)  # by table
    _targets: dict[int, Target] = field(default_factory=dict)
    _last: int = NO_TARGET

    def current(self, source: SourceTable) -> int:
        """Return the number of the source table's target. Raises what `target_of` raises."""
        target = self.target_of(source)
        if target is None:
            return NO_TARGET
        of_table = self._numbers.setdefault(target.name, {})
        for number, known in of_table.items():
            if known is target:
                return number
        self._last += 1
        of_table[self._last] = self._targets[self._last] = target
        while len(of_table) > _KEPT_OF_A_TABLE:
            oldest = next(iter(of_table))
            del of_table[oldest], self._targets[oldest]
        return self._last

    def target(self, number: int) -> Target:
        """Return the target with this number. Raises KeyError if its table has changed several times since."""
        return self._targets[number]

    def pickled(self, number: int) -> bytes | None:
        """Return the target for another process, as NumberedTarget; None for NO_TARGET."""
        if number == NO_TARGET:
            return None
        target = self._targets[number]
        return pickle.dumps((target, self.settings_of(target.name)), 5)

    def are_current(self, used: Mapping[SourceTable, int]) -> bool:
        """Return whether a batch that was decoded with these numbers need not be decoded again."""
        return all(self.is_current(source, number) for source, number in used.items())

    def is_current(self, source: SourceTable, number: int) -> bool:
        """Return whether this is the number of the source table's target. A process decodes for one target of a source
        table only, so it is not if the source table has several.
        """
        try:
            return self.current(source) == number
        except TidelakeError:
            return False
