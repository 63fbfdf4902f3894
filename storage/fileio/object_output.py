"""Writes a file to an object store: with one put at the end, or in parts that become visible only then."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import obstore
from obstore.exceptions import BaseError

from tidelake.storage.fileio.remote_output import RemoteOutput
from tidelake.storage.fileio.store_errors import as_os_errors
from tidelake.storage.fileio.store_requests import CountedRequest, Operation

if TYPE_CHECKING:
    from obstore.store import ObjectStore
    from typing_extensions import Buffer

# A smaller file is one put. S3 allows 10,000 parts, so a file may have 80 GB.
PART_BYTES: Final = 8 << 20

# Parts of one file that are sent at the same time. With the part being filled, an output holds at most 40 MiB.
_PARTS_IN_FLIGHT: Final = 4


class ObjectOutput(RemoteOutput):
    """See `Output`."""

    def __init__(self, store: ObjectStore, key: str, path: str) -> None:
        super().__init__(path, as_os_errors)
        self._store = store
        self._key = key
        self._sent_bytes = self._sent_parts = 0

    def _open(self) -> None:
        self._writer = obstore.open_writer(
            self._store, self._key, buffer_size=PART_BYTES, max_concurrency=_PARTS_IN_FLIGHT
        )

    def _send(self, data: Buffer) -> int:
        # obstore keeps the object without a copy until it is sent, but a writer may reuse its buffer before.
        content, before = bytes(data), self._sent_parts
        self._sent_bytes += len(content)
        self._sent_parts = self._sent_bytes // PART_BYTES
        # Full parts are sent now. The first one also begins the upload.
        requests = self._sent_parts - before + (before == 0 < self._sent_parts)
        if not requests:
            return self._writer.write(content)
        with CountedRequest(Operation.PUT, self.path, requests):
            return self._writer.write(content)

    def _publish(self) -> None:
        # The last part, and the request that joins all parts.
        with CountedRequest(Operation.PUT, self.path, 2 if self._sent_parts else 1):
            self._writer.close()

    def _drop(self, error: BaseException) -> None:
        # Aborts. If that fails, too, the parts remain, invisible but charged, until a lifecycle rule of the bucket
        # deletes them.
        with suppress(BaseError, OSError):
            self._writer.__exit__(type(error), error, error.__traceback__)
