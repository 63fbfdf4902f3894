"""Reads batches ahead of their consumer, in one thread, up to a limit of bytes.

Decoding releases the interpreter's lock, so the next batches are decoded while the consumer processes the last one. If
the consumer is slow or stops, the thread waits and memory does not grow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

import pyarrow as pa

from tidelake.storage.base import env

READ_AHEAD_BYTES: Final = 32 << 20


def read_ahead(batches: Iterator[pa.RecordBatch], bytes_max: int = READ_AHEAD_BYTES) -> Generator[pa.RecordBatch]:
    """Yield the same batches in the same order. An error is raised after the batches that were read before it.

    If the generator is closed early, its thread ends and closes `batches`.

    bytes_max: limit for batches that were read and not yet taken. A larger batch is read when no other is held.
    """
    ahead = _ReadAheadThread(batches, bytes_max)
    try:
        yield from ahead.batches()
    finally:
        ahead.stop()


class _ReadAheadThread:
    def __init__(self, batches: Iterator[pa.RecordBatch], bytes_max: int) -> None:
        self._batches = batches
        self._bytes_max = bytes_max
        self._changed = env.Condition()
        self._ready: deque[pa.RecordBatch] = deque()
        self._bytes = 0
        self._is_stopped = False
        self._is_done = False
        self._error: BaseException | None = None
        self._thread = env.Thread(target=self._read, name="read-ahead", daemon=True)
        self._thread.start()

    def batches(self) -> Iterator[pa.RecordBatch]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._ready or self._is_done)
                if not self._ready:
                    break
                batch = self._ready.popleft()
                self._bytes -= batch.nbytes
                self._changed.notify_all()
            yield batch
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        self._thread.join()
        self._ready.clear()

    def _read(self) -> None:
        try:
            for batch in self._batches:
                if not self._put(batch):
                    break
        except BaseException as error:
            self._error = error
        finally:
            close = getattr(self._batches, "close", None)
            if close is not None:
                close()
            with self._changed:
                self._is_done = True
                self._changed.notify_all()

    def _put(self, batch: pa.RecordBatch) -> bool:
        """Add the batch as soon as there is room. Returns False if the reader was closed."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_stopped or not self._ready or self._bytes + batch.nbytes <= self._bytes_max
            )
            if self._is_stopped:
                return False
            self._ready.append(batch)
            self._bytes += batch.nbytes
            self._changed.notify_all()
            return True
