"""How the workers of pytest-xdist share the tests: in modules, and all tests of a foreign part together.

One by one, ten thousand tests keep the process that hands them out busy longer than many of them take.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling


class ByPartOrModule(LoadGroupScheduling):  # type: ignore[misc]  # xdist has no types
    """Hands out groups (tests/support/external_services.py) and modules."""

    def _split_scope(self, nodeid: str) -> str:
        group: str = super()._split_scope(nodeid)
        return nodeid.partition("::")[0] if group == nodeid else group


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByPartOrModule | None:
    return ByPartOrModule(config, log) if config.getoption("dist") == "loadgroup" else None
