"""The program of a process that decodes batches for a pipeline: `python -m tidelake.ingest.decoding.decoder_program`.

It has no state but caches, and writes nothing. It ends when the pipeline's end of the socket is closed, which the
system does even if the pipeline is killed.
"""

from __future__ import annotations

import pickle
import signal
import socket
import sys
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Never

from tidelake.ingest.decoding.batch_messages import RawHead, parts_of, read_raw
from tidelake.ingest.decoding.frames import Kind, packed, receive
from tidelake.ingest.decoding.shared_slots import SLOT_BYTES, SharedSlots
from tidelake.ingest.decoding.target_numbers import NO_TARGET, OUTDATED, DecoderSetup, NumberedTarget
from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.source_table import SourceTable


class _TargetUnknown(Exception):
    """The pipeline has an error instead of a target. It decodes the batch itself, and raises the error."""


@dataclass(slots=True)
class _KnownTargets:
    """The targets that the pipeline has sent, by their numbers."""

    setup: DecoderSetup
    of_source: dict[SourceTable, int]
    by_number: dict[int, Target]

    def learn(self, source: SourceTable, number: int, pickled: bytes | None) -> None:
        """Learn the current target of a source table. pickled: None if it was sent before."""
        before = self.of_source.get(source, NO_TARGET)
        self.of_source[source] = number
        if pickled is not None:
            sent: NumberedTarget = pickle.loads(pickled)
            self.by_number[number] = self.setup.learn(sent)
        if before not in (number, NO_TARGET) and before not in self.of_source.values():
            del self.by_number[before]

    def number_of(self, target: Target) -> int | None:
        return next((number for number, one in self.by_number.items() if one is target), None)


class DecoderProgram:
    """Decodes what the pipeline sends, one batch after the other.

    Raises EOFError or ConnectionError if the pipeline ends before it has sent the setup.
    """

    def __init__(self, connection: socket.socket, slots: SharedSlots) -> None:
        self._connection = connection
        self._slots = slots
        self._waiting = deque[tuple[int, RawHead]]()
        self._used: dict[SourceTable, int] = {}
        kind, setup = receive(connection)
        assert kind is Kind.SETUP
        self._targets = _KnownTargets(setup, {}, {})
        self._decoder = setup.format.decoder(self._target_of)

    def run(self) -> Never:
        """Decode until the pipeline has ended. Raises EOFError or ConnectionError then."""
        self._send(Kind.READY, None)
        while True:
            self._decode(*(self._waiting.popleft() if self._waiting else self._receive(Kind.DECODE)))

    def _decode(self, slot: int, head: RawHead) -> None:
        self._used = {}
        try:
            decoded = self._decoder.decode(read_raw(head, self._slots.copied(slot, head[-1])))
            parts = parts_of(decoded, self._targets.number_of)
        except (EOFError, ConnectionError):
            raise
        except Exception as error:  # the pipeline decodes the batch itself, and raises the error with its own words
            self._send(Kind.FAILED, repr(error))
            return
        is_inline = parts.nbytes > SLOT_BYTES
        if not is_inline:
            parts.write(self._slots.part(slot, 0, parts.nbytes))
        self._send(Kind.DECODED, (parts.head, parts.sizes, is_inline, self._used))
        if is_inline:
            octets = bytearray(parts.nbytes)
            parts.write(memoryview(octets))
            self._connection.sendall(octets)

    def _target_of(self, source: SourceTable) -> Target | None:
        if source not in self._targets.of_source:
            self._send(Kind.WHICH_TARGET, source)
            answer = self._receive(Kind.TARGET)
            if answer is None:
                raise _TargetUnknown
            self._targets.learn(source, *answer)
        number = self._targets.of_source[source]
        if self._used.setdefault(source, number) != number:  # it changed while the batch is decoded
            self._used[source] = OUTDATED
        return None if number == NO_TARGET else self._targets.by_number[number]

    def _send(self, kind: Kind, content: Any) -> None:
        self._connection.sendall(packed(kind, content))

    def _receive(self, wanted: Kind) -> Any:
        """Return the next message of this kind. Batches that come before it wait. Targets are learned in the order in
        which the pipeline sends them.
        """
        while True:
            kind, content = receive(self._connection)
            if kind is Kind.DECODE:
                slot, head, targets = content
                for changed in targets:
                    self._targets.learn(*changed)
                content = slot, head
            if kind is wanted:
                return content
            self._waiting.append(content)


def decode_until_end(connection: socket.socket, slots: SharedSlots) -> None:
    """Decode until the pipeline has ended. It may end at any time, also before it has sent the setup."""
    with suppress(EOFError, ConnectionError):
        DecoderProgram(connection, slots).run()


def main(socket_fd: int, slots_fd: int) -> None:
    # A supervisor may send a signal to all processes of a service. The pipeline decides: after the first one it still
    # writes what it has read.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=socket_fd) as connection:
        decode_until_end(connection, SharedSlots(slots_fd))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
