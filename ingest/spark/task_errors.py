"""Errors of Spark's tasks in the driver's words: those that a task raised on purpose, and those of its environment."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from typing import Final

from tidelake.errors import PositionRefused, TidelakeError, UnsupportedFeature

_PACKAGES: Final = "ingest|storage|checkpoint|compaction|tidelake|pyspark_tidelake|pyarrow|numpy|msgspec|xxhash"
_MISSING_PACKAGE: Final = re.compile(rf"ModuleNotFoundError: No module named '((?:{_PACKAGES})\b[\w.]*)'")
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version:? \(?(\d+)(?:\.|, )(\d+)\)? than that in driver:? \(?(\d+)(?:\.|, )(\d+)"
)
_OPTIONS: Final = "Options:"  # the line of a PositionRefused that precedes its remedies
_REMEDY: Final = (
    "Give the executors the driver's environment, with --archives, in their image, or with spark.pyspark.python: see "
    "`tidelake help spark`"
)


@contextmanager
def explained_task_errors() -> Iterator[None]:
    """Raise the error that a task raised on purpose, which Spark passes on as text, with its type and message.

    Raises UnsupportedFeature for errors of workers that lack this package, or have another Python. Other errors stay.
    """
    try:
        yield
    except TidelakeError:
        raise
    except Exception as error:
        text = str(error)
        if (found := environment_error(text) or raised_in_task(text)) is None:
            raise
        raise found from error


def raised_in_task(text: str) -> TidelakeError | None:
    """Return our error in the text of a Spark error, which has a task's traceback; None if there is none.

    An error whose type needs more than a message is returned as the base type that doesn't.
    """
    lines = text.splitlines()
    for number in reversed(range(len(lines))):  # of errors that caused one another, the last one has the remedy
        name, _, message = lines[number].strip().partition(": ")
        kind = _own_error(name)
        if kind is None:
            continue
        ways_out = list(takewhile(lambda more: more == _OPTIONS or more.startswith("  "), lines[number + 1 :]))
        if kind is PositionRefused:
            return PositionRefused(message, [way.strip() for way in ways_out if way != _OPTIONS])
        plain = next(one for one in kind.__mro__ if "__init__" not in vars(one) and issubclass(one, TidelakeError))
        return plain("\n".join([message, *ways_out]))
    return None


def _own_error(name: str) -> type[TidelakeError] | None:
    """Return the type of this name, such as `tidelake.errors.BadInput`; None if it is not one of our errors."""
    module, _, short = name.rpartition(".")
    kind = getattr(sys.modules.get(module), short, None) if module.startswith("tidelake.") else None
    return kind if isinstance(kind, type) and issubclass(kind, TidelakeError) else None


def environment_error(text: str) -> UnsupportedFeature | None:
    """Return the error for the text of a Spark error, if it is about the workers' environment."""
    if (found := _MISSING_PACKAGE.search(text)) is not None:
        return UnsupportedFeature(
            "Spark's executors",
            f"their Python has no module {found[1]}, and the driver runs {sys.executable}, which has it",
            _REMEDY,
        )
    if (found := _OTHER_PYTHON.search(text)) is not None:
        return UnsupportedFeature(
            f"Spark's executors with Python {found[1]}.{found[2]}",
            f"the driver runs Python {found[3]}.{found[4]}, and both must be the same",
            _REMEDY,
        )
    return None
