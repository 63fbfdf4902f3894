"""Every suite of vectors has a test, or is listed here with the missing feature."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.cases import TESTS, is_overridden, vector_files

# A suite leaves this list when a test module calls vectors("<suite>").
NOT_YET: Final[Mapping[str, str]] = {}


def claims(module: Path) -> Iterator[str]:
    """Suites that a test module asks for: `vectors("levels")`."""
    text = module.read_text(encoding="utf-8")
    if "vectors(" not in text:  # most have none, and parsing takes its time
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Call(func=ast.Name(id="vectors"), args=[ast.Constant(value=str(suite)), *_]):
                yield suite


@cache
def claimed() -> frozenset[str]:
    return frozenset(suite for module in TESTS.rglob("test_*.py") for suite in claims(module))


def test_every_suite_of_vectors_is_tested_or_listed_as_not_yet() -> None:
    assert vector_files().keys() - claimed() - NOT_YET.keys() == set()


def test_a_suite_that_is_tested_is_not_listed_as_not_yet() -> None:
    assert NOT_YET.keys() & claimed() == set()


def test_listed_and_tested_suites_exist() -> None:
    if not is_overridden("TIDELAKE_VECTORS"):
        assert (NOT_YET.keys() | claimed()) - vector_files().keys() == set()
