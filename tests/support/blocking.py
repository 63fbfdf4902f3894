"""Makes tests fail that use an event loop wrongly: block it, or schedule a callback from another thread.

In coroutine tests, blocking calls raise BlockingError.

A synchronous test that starts a loop itself can use the fixture `blockbuster` to be checked, too.

Blockbuster detects sleep, sockets, `os`, `io`, `sqlite3` and locks. It cannot see the IO of Arrow and obstore, which is
in native code. All this IO goes through a FileIO, so each method of a FileIO counts as blocking, too.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from blockbuster import BlockBuster, BlockBusterFunction, blockbuster_ctx

import tidelake.storage.fileio
from tidelake.storage.fileio.base import FileIO

FILE_IO_METHODS = [
    name for name, member in vars(FileIO).items() if inspect.isfunction(member) and not name.startswith("_")
]


def file_io_classes() -> list[type]:
    """Returns all implementations of FileIO in tidelake.storage.fileio."""
    modules = [
        importlib.import_module(f"{tidelake.storage.fileio.__name__}.{info.name}")
        for info in pkgutil.iter_modules(tidelake.storage.fileio.__path__)
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
    """Returns the blocking calls that Blockbuster does not know. They are collected once per session."""
    return [
        BlockBusterFunction(None, "os.fsync"),
        *(
            BlockBusterFunction(owner, name)
            for owner in file_io_classes()
            for name in FILE_IO_METHODS
            if name in vars(owner)
        ),
    ]


@pytest.fixture(scope="session", autouse=True)
def _check_threads() -> Iterator[None]:
    """Makes the methods of a loop that are not safe in threads raise RuntimeError in another thread than the loop's."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("call_soon", "call_at"):  # `call_later` calls `call_at`
            patch.setattr(asyncio.BaseEventLoop, name, _checked(getattr(asyncio.BaseEventLoop, name)))
        yield


def _checked(method: Callable[..., asyncio.Handle]) -> Callable[..., asyncio.Handle]:
    def checked(loop: asyncio.BaseEventLoop, *args: Any, **options: Any) -> asyncio.Handle:
        loop._check_thread()  # type: ignore[attr-defined]
        return method(loop, *args, **options)

    return checked


@pytest.fixture(autouse=True)
def _watch_coroutines(request: pytest.FixtureRequest) -> None:
    """Checks only coroutine tests: patching some eighty functions takes longer than most synchronous tests."""
    if inspect.iscoroutinefunction(getattr(request.node, "obj", None)):
        request.getfixturevalue("blockbuster")


@pytest.fixture
def blockbuster(more_blocking_calls: list[BlockBusterFunction]) -> Iterator[BlockBuster]:
    """Detects blocking calls. It is active in every coroutine test.

    A test that must block calls `blockbuster.functions["time.sleep"].deactivate()`.
    """
    with blockbuster_ctx() as guard:
        guard.functions |= {call.full_name: call for call in more_blocking_calls}
        for call in more_blocking_calls:
            call.activate()
        yield guard
        for call in more_blocking_calls:
            call.deactivate()
