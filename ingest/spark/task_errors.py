"""Errors of Spark's tasks that are about the workers' environment, as one sentence with a remedy."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidelake.errors import TidelakeError, UnsupportedFeature

_PACKAGES: Final = "ingest|storage|checkpoint|compaction|tidelake|pyspark_tidelake|pyarrow|numpy|msgspec|xxhash"
_MISSING_PACKAGE: Final = re.compile(rf"ModuleNotFoundError: No module named '((?:{_PACKAGES})\b[\w.]*)'")
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version:? \(?(\d+)(?:\.|, )(\d+)\)? than that in driver:? \(?(\d+)(?:\.|, )(\d+)"
)
_REMEDY: Final = (
    "Give the executors the driver's environment, with --archives, in their image, or with spark.pyspark.python: see "
    "docs/spark.md"
)


@contextmanager
def explained_task_errors() -> Iterator[None]:
    """Raise UnsupportedFeature for errors of workers that lack this package, or have another Python."""
    try:
        yield
    except TidelakeError:
        raise
    except Exception as error:
        if (found := environment_error(str(error))) is None:
            raise
        raise found from error


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
