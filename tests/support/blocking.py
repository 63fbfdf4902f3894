"""A coroutine test that blocks the event loop fails: there, blocking calls raise BlockingError.

A synchronous test that starts a loop of its own asks for the fixture `blockbuster` to be watched too.

Blockbuster knows sleep, sockets, `os`, `io`, `sqlite3` and locks. Arrow and obstore do their IO in native code, unseen;
what reaches them goes through a FileIO, so every method of one counts as blocking too.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
from blockbuster import BlockBuster, BlockBusterFunction, blockbuster_ctx

import storage.fileio
from storage.fileio.base import FileIO

FILE_IO_METHODS = [
    name for name, member in vars(FileIO).items() if inspect.isfunction(member) and not name.startswith("_")
]


def file_io_classes() -> list[type]:
    """Every implementation of FileIO in storage.fileio."""
    modules = [
        importlib.import_module(f"{storage.fileio.__name__}.{info.name}")
        for info in pkgutil.iter_modules(storage.fileio.__path__)
    ]
    classes = {member for module in modules for member in vars(module).values() if inspect.isclass(member)}
    return sorted(
        (c for c in classes if c is not FileIO and not getattr(c, "_is_protocol", False) and _has_all_methods(c)),
        key=lambda c: c.__qualname__,
    )


def _has_all_methods(candidate: type) -> bool:
    return all(inspect.isfunction(getattr(candidate, name, None)) for name in FILE_IO_METHODS)


@pytest.fixture(scope="session")
def more_blocking_calls() -> list[BlockBusterFunction]:
    """What Blockbuster does not know of itself, found once."""
    return [
        BlockBusterFunction(None, "os.fsync"),
        *(
            BlockBusterFunction(owner, name)
            for owner in file_io_classes()
            for name in FILE_IO_METHODS
            if name in vars(owner)
        ),
    ]


@pytest.fixture(autouse=True)
def _watch_coroutines(request: pytest.FixtureRequest) -> None:
    """Patching some eighty functions takes longer than most synchronous tests do, so they go without."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("blockbuster")


@pytest.fixture
def blockbuster(more_blocking_calls: list[BlockBusterFunction]) -> Iterator[BlockBuster]:
    """Active in every coroutine test. One that must block: `blockbuster.functions["time.sleep"].deactivate()`."""
    with blockbuster_ctx() as guard:
        guard.functions |= {call.full_name: call for call in more_blocking_calls}
        for call in more_blocking_calls:
            call.activate()
        yield guard
        for call in more_blocking_calls:
            call.deactivate()
