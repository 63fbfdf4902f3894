"""A plugin of pytest that runs tests with an option made inert, instead of as they are.

    pytest -p tests.support.inert_options --inert=bucket,bucket-key -m '' TEST …

An inert option keeps its text in schemas and files, so other implementations still act on it. Only this process reads
it as if it were not set; processes that a test starts do not. A test notices if one of its cases fails. A line for each
option and test says whether it notices, and the run fails if one does not. `test_inert_options.py` uses it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeVar
from unittest.mock import patch

import pytest
from _pytest.runner import runtestprotocol

from tests.storage.model.options.option_tests import OPTION_TESTS
from tidelake.storage.catalog import filesystem
from tidelake.storage.catalog.hive.metastore_address import MetastoreAddress
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.options import CatalogOptions
from tidelake.storage.ddl import schema_creation
from tidelake.storage.model.options.base_options import BaseOptions
from tidelake.storage.model.options.registry import CATALOG_REGISTRY, TABLE_REGISTRY, OptionRegistry

T = TypeVar("T")

NOTICES: Final = "notices"
MISSES: Final = "misses"

READERS_OF_TEXTS: Final[tuple[tuple[Any, str, int, OptionRegistry], ...]] = (
    (CatalogOptions, "of", 0, CATALOG_REGISTRY),
    (DatabaseAddress, "of", 0, CATALOG_REGISTRY),
    (MetastoreAddress, "of", 0, CATALOG_REGISTRY),
    (filesystem, "of_branch", 1, TABLE_REGISTRY),
    (schema_creation, "_from_option", 1, TABLE_REGISTRY),
)
"""Functions that read options before there are typed values: the position of the texts among their arguments."""


@contextmanager
def inert(option: str) -> Iterator[None]:
    """The option has its default, whatever is set."""

    def is_hidden(registry: OptionRegistry, key: str) -> bool:
        found = registry.find(key)
        return found is not None and found.key == option

    def visible(self: BaseOptions) -> dict[str, str]:
        return {key: text for key, text in self._values.items() if not is_hidden(self.registry, key)}

    def name_of(self: BaseOptions, key: str, definition: Any) -> str | None:
        return next((name for name in (key, *definition.fallbacks) if name in visible(self)), None)

    def known(self: BaseOptions) -> dict[Any, Any]:
        values: dict[Any, Any] = self.__dict__.setdefault(f"known without {option}", {})
        return values

    def hiding(function: Callable[..., T], position: int, registry: OptionRegistry) -> Callable[..., T]:
        """Returns the function, which gets one mapping without the option."""

        def called(*given: Any, **named: Any) -> T:
            texts = {key: text for key, text in (given[position] or {}).items() if not is_hidden(registry, key)}
            if texts != given[position]:
                given = (*given[:position], texts, *given[position + 1 :])
            return function(*given, **named)

        return called

    with ExitStack() as patches:
        for owner, function, position, registry in READERS_OF_TEXTS:
            original = getattr(owner, function)
            patches.enter_context(patch.object(owner, function, hiding(original, position, registry)))
        for name, replacement in {
            "__getitem__": lambda self, key: visible(self)[key],
            "__iter__": lambda self: iter(visible(self)),
            "__len__": lambda self: len(visible(self)),
            "_name_of": name_of,
            "known": property(known, lambda self, values: self.__dict__.update(known=values)),
        }.items():
            patches.enter_context(patch.object(BaseOptions, name, replacement, create=True))
        yield


# ---------------------------------------------------------------- the run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--inert",
        default=",".join(OPTION_TESTS),
        help="options, separated by commas: each for its test of the table, or else for all given tests",
    )


def pytest_configure() -> None:
    from tests.support.levels import stop_at_first_failure  # noqa: PLC0415  # pytest must be the first to import it

    stop_at_first_failure()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    cases: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in session.items:
        cases[item.nodeid.partition("[")[0]].append(item)
    reporter: pytest.TerminalReporter = session.config.pluginmanager.getplugin("terminalreporter")
    for option in session.config.getoption("--inert").split(","):
        own = OPTION_TESTS.get(option)
        for test in [own] if own is not None and own in cases else list(cases):
            verdict, details = _verdict(option, cases[test])
            reporter.write_line(f"{verdict}\t{option}\t{test}\t{details}", flush=True)
            session.testsfailed += verdict == MISSES
    return True


def _verdict(option: str, cases: list[pytest.Item]) -> tuple[str, str]:
    ran = 0
    for item in cases:
        with inert(option):
            item._initrequest()  # type: ignore[attr-defined]  # an item may run for several options
            # everything is torn down but what lives as long as the session: services that know no option
            reports = runtestprotocol(item, log=False, nextitem=item.session)  # type: ignore[arg-type]
        for report in reports:
            if report.failed:
                return NOTICES, f"in {report.when}: {str(report.longrepr).splitlines()[-1][:150]}"
            ran += report.when == "call" and report.passed
    return MISSES, f"{ran} cases pass"
