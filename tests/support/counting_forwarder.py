"""Counts the bytes that a server sends: a TCP forwarder between server and client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress


class CountingForwarder:
    """`address` (host:port) is where the client connects; `received_bytes` is what came back through it so far."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.received_bytes = 0
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._run(self._accept)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                self._run(self._pump, client, server, False)
                self._run(self._pump, server, client, True)

    def _pump(self, source: socket.socket, target: socket.socket, counted: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if counted:  # before the client has them: it is never ahead of the count
                    with self._lock:
                        self.received_bytes += len(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for end in self._sockets:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for end in self._sockets:
            end.close()


@contextmanager
def counting_forwarder(host: str, port: int) -> Iterator[CountingForwarder]:
    forwarder = CountingForwarder(host, port)
    try:
        yield forwarder
    finally:
        forwarder.close()
