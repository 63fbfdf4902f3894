"""Messages between a pipeline and a process that decodes for it: a kind, a length, a pickled object.

Both processes are of one program and one user, over a socket that nobody else has. The messages are small: records are
in the shared slots.
"""

from __future__ import annotations

import pickle
import socket
import struct
from enum import IntEnum
from typing import Any, Final

HEAD: Final = struct.Struct(">BI")


class Kind(IntEnum):
    """Kinds of messages, with their objects."""

    SETUP = 1
    """To the process, once: `DecoderSetup`."""
    READY = 2
    """From the process, once: None. It can decode."""
    DECODE = 3
    """To the process: (slot, RawHead, [(source table, number, pickled target or None)])."""
    DECODED = 4
    """From the process, in the order of DECODE: (head, sizes, is_inline, {source table: number of its target}). If it
    is inline, the octets follow the message; otherwise they are in the slot."""
    FAILED = 5
    """From the process, instead of DECODED: the error's text."""
    WHICH_TARGET = 6
    """From the process while it decodes: a source table."""
    TARGET = 7
    """To the process, the answer: (number, pickled target or None); None if there was an error."""


def packed(kind: Kind, content: Any) -> bytes:
    """Return a message."""
    body = pickle.dumps(content, 5)
    return HEAD.pack(kind, len(body)) + body


def receive(connection: socket.socket) -> tuple[Kind, Any]:
    """Return the next message. Blocks. Raises EOFError if the other process has ended."""
    kind, length = HEAD.unpack(_exactly(connection, HEAD.size))
    return Kind(kind), pickle.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, n: int) -> bytearray:
    octets = bytearray(n)
    view = memoryview(octets)
    while view:
        if not (got := connection.recv_into(view)):
            raise EOFError
        view = view[got:]
    return octets
