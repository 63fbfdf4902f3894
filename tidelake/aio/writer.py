"""`tidelake.writer` with async."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

import pyarrow as pa

from tidelake.storage.base.threads import run_uncancellable
from tidelake.writer import Writer as BlockingWriter


class Writer:
    """See `tidelake.Writer`. One task at a time."""

    def __init__(self, inner: BlockingWriter) -> None:
        self._inner = inner

    @property
    def commit_user(self) -> str:
        return self._inner.commit_user

    async def write(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Write rows. If it is cancelled, it first completes the write."""
        await run_uncancellable(self._inner.write, rows)

    async def commit(
        self,
        identifier: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        watermark: int | None = None,
    ) -> int | None:
        """Commit the rows. If it is cancelled while publishing, it first waits until the outcome is known."""
        return await run_uncancellable(self._inner.commit, identifier, properties=properties, watermark=watermark)

    async def close(self) -> None:
        await run_uncancellable(self._inner.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
