"""What is known of one option, and what becomes of it here.

For every option one of three is true. It acts. Or the operation that it would change refuses it, with the reason and a
remedy. Or it can't change what any reader sees; then a line in the log says so, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from storage.options.values import OptionType


class Operation(StrEnum):
    """READ: the table at a snapshot.
    CHANGES: what changed between snapshots.
    WRITE: adding rows.
    COMPACT: rewriting files, in a job of its own.
    EXPIRE: removing snapshots.
    CREATE: a table, or the next version of its schema.
    OPEN: a catalog.
    """

    READ = "read"
    CHANGES = "changes"
    WRITE = "write"
    COMPACT = "compact"
    EXPIRE = "expire"
    CREATE = "create"
    OPEN = "open"


READ: Final = frozenset({Operation.READ})
CHANGES: Final = frozenset({Operation.CHANGES})
WRITE: Final = frozenset({Operation.WRITE})
COMPACT: Final = frozenset({Operation.COMPACT})
EXPIRE: Final = frozenset({Operation.EXPIRE})
CREATE: Final = frozenset({Operation.CREATE})
OPEN: Final = frozenset({Operation.OPEN})
READING: Final = READ | CHANGES
MAKING_FILES: Final = WRITE | COMPACT
MERGING: Final = READ | MAKING_FILES
USING_ROWS: Final = READING | MAKING_FILES


class OptionValues(Protocol):
    """The options of a table, as conditions see them."""

    def __getitem__(self, key: str) -> str: ...
    def get(self, key: str, default: str, /) -> str: ...
    def is_on(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """Of an option that is set: whether its value stands in the way.

    text: for people.
    example: a value that does.
    """

    text: str
    example: str
    holds: Callable[[str, OptionValues], bool]


def other_than(*supported: str, example: str) -> Condition:
    return Condition(
        f"other than {', '.join(supported)}",
        example,
        lambda key, values: values[key].strip().lower() not in supported,
    )


def is_set(example: str) -> Condition:
    return Condition("set", example, lambda key, values: bool(values[key].strip()))


IS_TRUE: Final = Condition("true", "true", lambda key, values: values.is_on(key))


@dataclass(frozen=True, slots=True)
class Refusal:
    """When an option stops an operation that would go wrong."""

    operations: frozenset[Operation]
    when: Condition
    reason: str
    remedy: str


@dataclass(frozen=True)
class Option:
    """key: with `<…>` where a name stands, and `*` at the end for whatever follows.

    default: as text, as Java declares it; None when there is none, or when it depends on other options (then
        `TableOptions` derives it).
    unset: as text, what counts where the option is not set and Java declares no default (its code has one).
    derived: in words, what comes of an option that is not set, where its default doesn't count.
    fallbacks: other names of the option; the first that is set decides.
    immutable: can't change once the table has snapshots, as files depend on it.
    for_ever: can't change at all, as it says which table it is, or what.
    decides_rows: may change, but says which rows or changes readers see: not to be changed by the way.
    acts_on: what this release does differently because of it.
    no_effect: why a reader of the table sees no difference; None for an option that acts or is refused.
    release: of Java Paimon 2.0.0 unless said otherwise.
    """

    key: str
    kind: OptionType
    default: str | None = None
    fallbacks: tuple[str, ...] = ()
    immutable: bool = False
    acts_on: frozenset[Operation] = frozenset()
    refusals: tuple[Refusal, ...] = ()
    no_effect: str | None = None
    release: str = "2.0.0"
    unset: str | None = None
    derived: str | None = None
    for_ever: bool = False
    decides_rows: bool = False
    is_family: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_family", self.key.endswith("*") or "<" in self.key)
        assert bool(self.acts_on or self.refusals) != bool(self.no_effect), (
            f"{self.key}: it acts, is refused, or neither"
        )

    @property
    def in_effect(self) -> str | None:
        """The text that counts where the option is not set; None for none."""
        if self.derived is not None:
            return None
        return self.default if self.unset is None else self.unset

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Of the keys of a family."""
        parts = re.split(r"(<[^>]*>|\*$)", self.key)
        return re.compile("".join(".+" if part[:1] in ("<", "*") else re.escape(part) for part in parts))


def acts(
    key: str,
    kind: OptionType,
    default: str | None,
    operations: frozenset[Operation],
    *refusals: Refusal,
    fallbacks: tuple[str, ...] = (),
    immutable: bool = False,
    release: str = "2.0.0",
    unset: str | None = None,
    derived: str | None = None,
    for_ever: bool = False,
) -> Option:
    """An option that does here what it does in Java, apart from values that an operation refuses."""
    return Option(
        key,
        kind,
        default,
        fallbacks,
        immutable,
        operations,
        refusals,
        release=release,
        unset=unset,
        derived=derived,
        for_ever=for_ever,
    )


def deciding_rows(option: Option) -> Option:
    return replace(option, decides_rows=True)


def refused(
    key: str,
    kind: OptionType,
    default: str | None,
    *refusals: Refusal,
    fallbacks: tuple[str, ...] = (),
    immutable: bool = False,
    release: str = "2.0.0",
) -> Option:
    """An option of something that this release lacks. OptionValues that are not refused are the same as none."""
    return Option(key, kind, default, fallbacks, immutable, refusals=refusals, release=release)


def without_effect(
    key: str,
    kind: OptionType,
    default: str | None,
    why: str,
    *,
    fallbacks: tuple[str, ...] = (),
    immutable: bool = False,
    release: str = "2.0.0",
) -> Option:
    return Option(key, kind, default, fallbacks, immutable, no_effect=why, release=release)
