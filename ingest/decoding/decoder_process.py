"""A process that decodes batches, as the pipeline sees it."""

from __future__ import annotations

import asyncio
import pickle
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.ingest.allocators import service_environment
from tidelake.ingest.decoding.batch_messages import joined, raw_size, size_of, write_raw
from tidelake.ingest.decoding.frames import HEAD, Kind, packed
from tidelake.ingest.decoding.shared_slots import SLOT_BYTES, SLOTS, SharedSlots
from tidelake.ingest.decoding.target_numbers import DecoderSetup, TargetNumbers
from tidelake.ingest.formats.base import DecodedBatch
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.raw_batch import RawBatch
from tidelake.storage.base.logs import get_logger

_PROGRAM: Final = "tidelake.ingest.decoding.decoder_program"
_ENDED: Final = (asyncio.IncompleteReadError, ConnectionError)

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DecodedElsewhere:
    """What a process made of a batch.

    used: the source tables that the decoder asked for, with the numbers of their targets.
    """

    decoded: DecodedBatch
    used: Mapping[SourceTable, int]


class DecodeTask:
    """A batch to decode.

    outcome: set once. None: no process has decoded it, so the pipeline does.
    """

    def __init__(self, batch: RawBatch) -> None:
        self.batch = batch
        self.outcome: asyncio.Future[DecodedElsewhere | None] = asyncio.get_running_loop().create_future()

    def finish(self, outcome: DecodedElsewhere | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class DecoderProcess:
    """A process, and the batches that it decodes, in their order.

    numbers: the targets of the pipeline.
    changed: called when the process can take a batch that it could not take before, and when it has ended.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        slots: SharedSlots,
        connection: socket.socket,
        numbers: TargetNumbers,
        changed: Callable[[], None],
    ) -> None:
        self._process = process
        self._slots = slots
        self._connection = connection
        self._numbers = numbers
        self._changed = changed
        self._writer: asyncio.StreamWriter | None = None
        self._tasks = deque[tuple[DecodeTask, int]]()  # with their slots
        self._begun = 0
        self._known: dict[str, dict[SourceTable, int]] = {}  # what the process knows of source tables, by topic
        self._sent: set[int] = set()  # numbers of targets
        self.decoded = 0
        self.is_ready = False

    @classmethod
    def started(cls, numbers: TargetNumbers, changed: Callable[[], None]) -> DecoderProcess:
        """Start a process. Blocks. Raises OSError if this is impossible."""
        slots = SharedSlots.new()
        here, there = socket.socketpair()
        try:
            with there:
                process = subprocess.Popen(
                    [sys.executable, "-m", _PROGRAM, str(there.fileno()), str(slots.fd)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env=_environment(),
                    pass_fds=(there.fileno(), slots.fd),
                    start_new_session=True,  # a terminal's signals are the pipeline's to handle
                )
        except BaseException:
            here.close()
            slots.close()
            raise
        return cls(process, slots, here, numbers, changed)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def has_room(self) -> bool:
        return self.is_ready and len(self._tasks) < SLOTS

    @property
    def bytes_in_flight(self) -> int:
        return sum(task.batch.nbytes for task, _ in self._tasks)

    async def serve(self, setup: DecoderSetup) -> None:
        """Answer the process, and pass on what it has decoded, until it ends. Then its tasks have no outcome."""
        try:
            reader, self._writer = await asyncio.open_unix_connection(sock=self._connection)
            self._writer.write(packed(Kind.SETUP, setup))
            while True:
                kind, length = HEAD.unpack(await reader.readexactly(HEAD.size))
                await self._take(Kind(kind), memoryview(await reader.readexactly(length)), reader)
        except _ENDED:
            return
        finally:
            self.is_ready = False
            while self._tasks:
                self._tasks.popleft()[0].finish(None)
            self._changed()

    def begin(self, task: DecodeTask) -> bool:
        """Let the process decode a batch. Call it only if it `has_room`. Returns False for a batch that is too large,
        or whose target can't be found: the pipeline has to decode it.
        """
        assert self._writer is not None
        batch, slot = task.batch, self._begun % SLOTS
        if raw_size(batch) > SLOT_BYTES:
            return False
        try:
            targets = self._changed_targets(batch.topic)
        except TidelakeError:  # it is raised when the pipeline decodes the batch
            return False
        head = write_raw(batch, self._slots.part(slot, 0, SLOT_BYTES))
        self._writer.write(packed(Kind.DECODE, (slot, head, targets)))
        self._begun += 1
        self._tasks.append((task, slot))
        return True

    def _changed_targets(self, topic: str) -> list[tuple[SourceTable, int, bytes | None]]:
        """Return the targets of the topic that the process does not know in their current state."""
        known = self._known.get(topic, {})
        outdated = [source for source, number in known.items() if not self._numbers.is_current(source, number)]
        changed: list[tuple[SourceTable, int, bytes | None]] = []
        for source in outdated:
            with suppress(TidelakeError):  # what is decoded for its old target is decoded again
                changed.append((source, *self._tell(source, self._numbers.current(source))))
        return changed

    def _tell(self, source: SourceTable, number: int) -> tuple[int, bytes | None]:
        """Return what a message says of a source table's target. The process knows it from now on."""
        pickled = None if number in self._sent else self._numbers.pickled(number)
        self._known.setdefault(source.topic, {})[source] = number
        self._sent = {n for of_topic in self._known.values() for n in of_topic.values()}  # it forgets the others
        return number, pickled

    async def _take(self, kind: Kind, body: memoryview, reader: asyncio.StreamReader) -> None:
        content = pickle.loads(body)
        match kind:
            case Kind.READY:
                self.is_ready = True
            case Kind.WHICH_TARGET:
                self._answer(content)
                return
            case Kind.FAILED:
                _log.debug("a process could not decode a batch", pid=self.pid, error=content)
                self._tasks.popleft()[0].finish(None)
            case Kind.DECODED:
                await self._finish(content, reader)
            case _:
                raise AssertionError(kind)
        self._changed()

    async def _finish(self, content: Any, reader: asyncio.StreamReader) -> None:
        head, sizes, is_inline, used = content
        task, slot = self._tasks[0]
        nbytes = size_of(sizes)
        octets = pa.py_buffer(await reader.readexactly(nbytes)) if is_inline else self._slots.copied(slot, nbytes)
        self._tasks.popleft()
        try:
            decoded = joined(head, sizes, octets, self._numbers.target)
        except KeyError:  # the target has changed several times
            task.finish(None)
        else:
            self.decoded += 1
            task.finish(DecodedElsewhere(decoded, used))

    def _answer(self, source: SourceTable) -> None:
        assert self._writer is not None
        try:
            answer = self._tell(source, self._numbers.current(source))
        except TidelakeError:
            answer = None
        self._writer.write(packed(Kind.TARGET, answer))

    def end(self) -> int:
        """End the process, which has no state, and return its exit code. Blocks. Call it once."""
        self._process.kill()
        code = self._process.wait()
        self._slots.close()
        return code

    def disconnect(self) -> None:
        """Close the connection, so that the process ends by itself."""
        if self._writer is None:
            self._connection.close()
        else:
            self._writer.close()


def _environment() -> dict[str, str]:
    """Return the environment in which Python finds this very package."""
    home = str(Path(__file__).parents[3])  # the folder of the package tidelake
    environment = service_environment()
    path = [home, *filter(None, [environment.get("PYTHONPATH")])]
    return {**environment, "PYTHONPATH": ":".join(path)}
