"""Calls a metastore over pooled connections.

The messages are the classes that Thrift generates from Hive's definition; the package pymetastore contains them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Final, TypeVar

from tidelake.errors import UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.catalog.hive.metastore_address import MetastoreAddress

T = TypeVar("T")

_CONNECT_MS: Final = 30_000
_ANSWER_MS: Final = 600_000  # the timeout of Hive's own clients
_IDLE_S_MAX: Final = 5.0  # a metastore closes idle connections; a call over a closed one may be lost


def check_pymetastore() -> None:
    if find_spec("pymetastore") is None:
        raise UnsupportedFeature(
            "catalog option metastore = hive",
            "it needs the package pymetastore",
            "Install it: pip install 'tidelake[hive]'",
        )


@dataclass(frozen=True, slots=True)
class MetastoreClient:
    """A thread-safe client of a metastore. It can be pickled; a copy opens its own connections."""

    address: MetastoreAddress

    def read(self, call: Callable[[Any], T]) -> T:
        """Make a call that may be repeated.

        call: receives Thrift's client. It may be called a second time, with another connection.

        Raises the errors of the metastore (`pymetastore.hive_metastore.ttypes`), and ConnectionError if the metastore
        can't be reached.
        """
        pool = _pool(self.address, os.getpid())
        try:
            return pool.call(call)
        except ConnectionError:
            return pool.call(call)

    def change(self, call: Callable[[Any], T]) -> T:
        """Like `read`, but makes the call only once. After a ConnectionError the change may have been made."""
        return _pool(self.address, os.getpid()).call(call)


class _Pool:
    def __init__(self, address: MetastoreAddress) -> None:
        self._address = address
        self._lock = env.Lock()
        self._idle: list[tuple[float, Any, Any]] = []  # idle since (monotonic seconds), transport, client

    def call(self, call: Callable[[Any], T]) -> T:
        from thrift.protocol.TProtocol import TProtocolException  # noqa: PLC0415  # an extra
        from thrift.transport.TTransport import TTransportException  # noqa: PLC0415

        transport, client = self._take()
        is_sound = False
        try:
            answer = call(client)
            is_sound = True
            return answer
        except (TTransportException, TProtocolException, OSError) as e:
            raise ConnectionError(f"Hive metastore {self._address}: {e}") from e
        except Exception:
            is_sound = True  # the metastore answered
            raise
        finally:
            self._return_connection(transport, client, is_sound=is_sound)

    def _take(self) -> tuple[Any, Any]:
        now = env.monotonic_s()
        with self._lock:
            stale = [transport for since, transport, _ in self._idle if now - since > _IDLE_S_MAX]
            self._idle = [entry for entry in self._idle if now - entry[0] <= _IDLE_S_MAX]
            found = self._idle.pop() if self._idle else None
        for transport in stale:
            transport.close()
        return self._connect() if found is None else (found[1], found[2])

    def _return_connection(self, transport: Any, client: Any, *, is_sound: bool) -> None:
        with self._lock:
            if is_sound and len(self._idle) < self._address.pool_size:
                self._idle.append((env.monotonic_s(), transport, client))
                return
        transport.close()

    def _connect(self) -> tuple[Any, Any]:
        from pymetastore.hive_metastore import ThriftHiveMetastore  # noqa: PLC0415  # an extra, and heavy
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol  # noqa: PLC0415
        from thrift.transport import TSocket, TTransport  # noqa: PLC0415

        failures = []
        for host, port in self._address.servers:
            socket = TSocket.TSocket(host, port)
            socket.setTimeout(_CONNECT_MS)
            transport = TTransport.TBufferedTransport(socket)
            try:
                transport.open()
            except (TTransport.TTransportException, OSError) as e:
                failures.append(f"{host}:{port}: {e}")
                continue
            socket.setTimeout(_ANSWER_MS)
            return transport, ThriftHiveMetastore.Client(TBinaryProtocol(transport))
        raise ConnectionError(f"no Hive metastore could be reached: {'; '.join(failures)}")


@lru_cache(maxsize=64)
def _pool(address: MetastoreAddress, process_id: int) -> _Pool:
    """Return the pool of this process: connections don't survive a fork."""
    return _Pool(address)
