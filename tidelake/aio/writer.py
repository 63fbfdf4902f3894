"""`tidelake.writer` with async."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tidelake.aio.forwarding import writes
from tidelake.storage.base.threads import run_uncancellable
from tidelake.writer import Writer as BlockingWriter


class Writer:
    """See `tidelake.Writer`. One task at a time."""

    def __init__(self, inner: BlockingWriter) -> None:
        self._inner = inner

    @property
    def commit_user(self) -> str:
        return self._inner.commit_user

    write = writes(BlockingWriter.write)
    commit = writes(BlockingWriter.commit)
    close = writes(BlockingWriter.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await run_uncancellable(self._inner.__exit__, kind, error, trace)
