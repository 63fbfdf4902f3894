"""Async methods made of blocking ones: the same parameters, the same documentation, and a coroutine of the result.

    class Table:
        _inner: blocking.Table
        snapshots = reads(blocking.Table.snapshots)
        delete_tag = writes(blocking.Table.delete_tag)

A new method needs one such line. Type checkers see its exact parameters and result, `help()` its own documentation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from functools import partial, wraps
from inspect import cleandoc
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar, cast, overload

from tidelake.aio.blocking_iterators import iterate
from tidelake.storage.base.threads import run_uncancellable

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
W = TypeVar("W")

_COMPLETED: Final = "If it is cancelled, it first completes the call."
_RUNS_IN: Final[dict[bool, Callable[..., Coroutine[Any, Any, Any]]]] = {
    False: asyncio.to_thread,
    True: run_uncancellable,
}


class Method(Protocol[P, T_co]):
    """A method with these parameters, for type checkers: an attribute that is merely callable would keep its self."""

    @overload
    def __get__(self, of: None, kind: type, /) -> Callable[Concatenate[Any, P], T_co]: ...
    @overload
    def __get__(self, of: object, kind: type | None = None, /) -> Callable[P, T_co]: ...


@overload
def reads(method: Callable[Concatenate[Any, P], T]) -> Method[P, Coroutine[Any, Any, T]]: ...
@overload
def reads(method: Callable[Concatenate[Any, P], T], into: Callable[[T], W]) -> Method[P, Coroutine[Any, Any, W]]: ...
def reads(method: Callable[..., Any], into: Callable[[Any], Any] | None = None) -> Method[..., Any]:
    """Make an async method of one that changes nothing: if it is cancelled, its thread is abandoned.

    into: makes the async object of the result
    """
    return _forwarded(method, into, is_completed=False)


@overload
def writes(method: Callable[Concatenate[Any, P], T]) -> Method[P, Coroutine[Any, Any, T]]: ...
@overload
def writes(method: Callable[Concatenate[Any, P], T], into: Callable[[T], W]) -> Method[P, Coroutine[Any, Any, W]]: ...
def writes(method: Callable[..., Any], into: Callable[[Any], Any] | None = None) -> Method[..., Any]:
    """Make an async method of one that changes something: if it is cancelled, it is completed first.

    into: makes the async object of the result
    """
    return _forwarded(method, into, is_completed=True)


def yields(method: Callable[Concatenate[Any, P], Iterator[T]]) -> Method[P, AsyncGenerator[T]]:
    """Make a method that returns an async iterator of one that returns an iterator."""

    @wraps(method)
    def forward(self: Any, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[T]:
        return iterate(partial(getattr(self._inner, method.__name__), *args, **kwargs))

    return cast(Method[P, AsyncGenerator[T]], forward)


def wraps_result(method: Callable[Concatenate[Any, P], T], into: Callable[[T], W]) -> Method[P, W]:
    """Make a method of one that does not wait; `into` makes the async object of the result."""

    @wraps(method)
    def forward(self: Any, *args: P.args, **kwargs: P.kwargs) -> W:
        return into(getattr(self._inner, method.__name__)(*args, **kwargs))

    return cast(Method[P, W], forward)


def _forwarded(
    method: Callable[..., Any], into: Callable[[Any], Any] | None, *, is_completed: bool
) -> Method[..., Any]:
    # The method is looked up by its name: tables of other kinds have their own.
    @wraps(method)
    async def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = await _RUNS_IN[is_completed](getattr(self._inner, method.__name__), *args, **kwargs)
        return found if into is None else into(found)

    if is_completed:
        forward.__doc__ = f"{cleandoc(method.__doc__)}\n\n{_COMPLETED}" if method.__doc__ else _COMPLETED
    return cast(Method[..., Any], forward)
