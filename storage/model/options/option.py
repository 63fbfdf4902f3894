"""The definition of one option, and its effect in this release.

Each option is of one of three kinds. It acts as in Java. Or the operation that it would change refuses it, with the
reason and a remedy. Or no reader of the table can see a difference; then one line in the log reports it, once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Final, Protocol

from tidelake.storage.model.options.values import OptionType


class Operation(StrEnum):
    """An operation on a table or catalog.

    READ: read the table at a snapshot.
    CHANGES: read the changes between snapshots.
    WRITE: add rows.
    COMPACT: rewrite files, in a separate job.
    EXPIRE: remove snapshots.
    CREATE: create a table, or the next version of its schema.
    OPEN: open a catalog.
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
FILE_WRITING_OPERATIONS: Final = WRITE | COMPACT
MERGING: Final = READ | FILE_WRITING_OPERATIONS
ROW_OPERATIONS: Final = READING | FILE_WRITING_OPERATIONS


class OptionValues(Protocol):
    """The options of a table, as conditions use them."""

    def __getitem__(self, key: str) -> str: ...
    def get(self, key: str, default: str, /) -> str: ...
    def is_on(self, key: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on an option that is set: whether its value prevents an operation.

    text: a description for people.
    example: a value for which the condition holds.
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
    """The case in which an option stops an operation, because its result would be wrong."""

    operations: frozenset[Operation]
    when: Condition
    reason: str
    remedy: str


@dataclass(frozen=True)
class Option:
    """The definition of an option.

    key: `<…>` stands for a name, and `*` at the end for any text.
    default: the default as Java declares it, as text; None if it has none, or if it depends on other options (then
        `TableOptions` derives it).
    unset: the effective value, as text, of an option that is not set and has no declared default in Java (its code has
        one).
    derived: a description of the effective value of an option that is not set, if the default does not apply.
    fallbacks: other names of the option; the first one that is set decides.
    immutable: can't change once the table has snapshots, because files depend on it.
    never_changes: can't change at all, because it identifies the table or its type.
    decides_rows: can change, but decides which rows or changes readers see. It must not be changed as a side effect,
        and no dynamic option overrides it.
    acts_on: operations that this release does differently because of it.
    no_effect: why a reader of the table sees no difference; None for an option that acts or is refused.
    release: the release of Java Paimon that has it, 2.0.0 unless stated otherwise.
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
    never_changes: bool = False
    decides_rows: bool = False
    is_family: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_family", self.key.endswith("*") or "<" in self.key)
        assert bool(self.acts_on or self.refusals) != bool(self.no_effect), (
            f"{self.key}: it acts, is refused, or neither"
        )

    @property
    def in_effect(self) -> str | None:
        """The effective value, as text, if the option is not set; None if there is none."""
        if self.derived is not None:
            return None
        return self.default if self.unset is None else self.unset

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """A pattern for the keys of a family."""
        parts = re.split(r"(<[^>]*>|\*$)", self.key)
        return re.compile("".join(".+" if part[:1] in ("<", "*") else re.escape(part) for part in parts))


def supported(
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
    never_changes: bool = False,
) -> Option:
    """Define an option that does the same as in Java, except for values that an operation refuses."""
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
        never_changes=never_changes,
    )


def deciding_rows(option: Option) -> Option:
    return replace(option, decides_rows=True)


def unsupported(
    key: str,
    kind: OptionType,
    default: str | None,
    *refusals: Refusal,
    fallbacks: tuple[str, ...] = (),
    immutable: bool = False,
    release: str = "2.0.0",
) -> Option:
    """Define an option of a feature that this release lacks. Values that are not refused have no effect."""
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


USE_JAVA: Final = "Use Java Paimon for it"
PERFORMANCE_ONLY: Final = "it only changes how fast, in how much memory or in how many pieces work is done"
LAYOUT: Final = "it only changes the layout of rows in files"
FLINK: Final = "only Flink jobs use it"
