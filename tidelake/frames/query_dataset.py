"""A dataset that DuckDB reads, in which all reads of one query see one state of the table.

A self join, a subquery or EXCEPT makes several scanners, at different times, and DuckDB does not tell which query a
scanner is for. But it keeps the Arrow streams of a query until the query ends, and a connection runs one query at a
time. So a state is kept as long as a stream of it is: the release of a stream is the only sign of its end.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import pyarrow as pa

from tidelake.frames.dataset import ScanDataset
from tidelake.frames.readable import Readable
from tidelake.storage.base import env


class QueryDataset(ScanDataset):
    """A dataset whose scanners of one query read one state. It is for one connection."""

    def __init__(
        self,
        schema: pa.Schema,
        opened: Callable[[], Readable],
        adapted: pa.Schema | None = None,
        observed: Callable[[Readable], Readable] | None = None,
    ) -> None:
        self._one_state = _OneState(opened)
        super().__init__(schema, self._one_state, adapted, observed)

    def scanner(self, *arguments: Any, **named: Any) -> Any:
        state = self._one_state.state()
        try:
            return _Scanner(super().scanner(*arguments, **named), state)
        except BaseException:
            del state  # an error that someone keeps, as the prompt of Python does, must not keep the state
            raise


class _State:
    """A read, which others may use as long as anything has this object."""

    def __init__(self, scan: Readable) -> None:
        self.scan = scan


class _OneState:
    """Opens a table again only if no stream of the state before is left."""

    def __init__(self, opened: Callable[[], Readable]) -> None:
        self._open = opened
        self._lock = env.Lock()
        self._newest: ref[_State] | None = None

    def __call__(self) -> Readable:
        return self.state().scan

    def state(self) -> _State:
        with self._lock:
            state = self._newest() if self._newest is not None else None
            if state is None:
                state = _State(self._open())
                self._newest = ref(state)
            return state

    def __reduce__(self) -> Any:
        return _OneState, (self._open,)


class _Scanner:
    """A `pyarrow.dataset.Scanner` that keeps the state of its rows."""

    def __init__(self, scanner: Any, state: _State) -> None:
        self._scanner = scanner
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scanner, name)

    def to_reader(self) -> _Reader:
        return _Reader(self._scanner.to_reader(), self._state)


class _Reader:
    """A `pyarrow.RecordBatchReader` whose exported stream keeps the state until the stream is released."""

    def __init__(self, reader: pa.RecordBatchReader, state: _State) -> None:
        self._reader = reader
        self._state = state

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        capsule = self._reader.__arrow_c_stream__(requested_schema)
        _keep(_address(capsule, b"arrow_array_stream"), self._state)
        return capsule

    def _export_to_c(self, address: int) -> None:
        self._reader._export_to_c(address)
        _keep(address, self._state)


# ---------------------------------------------------------------- the end of a stream


class _ArrowArrayStream(ctypes.Structure):
    """The struct of the Arrow C stream interface."""

    _fields_ = (
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    )


_Release: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_kept: Final[dict[int, tuple[int, _State]]] = {}
"""The release function of pyarrow, and the state, of each stream that is not released, by its private data."""


def _release(address: int) -> None:
    stream = _ArrowArrayStream.from_address(address)
    own, _ = _kept.pop(stream.private_data)
    stream.release = own
    _Release(own)(address)


_released: Final = _Release(_release)


def _keep(address: int, state: _State) -> None:
    """Keep a state until the stream at an address, or where its consumer moves it, is released."""
    stream = _ArrowArrayStream.from_address(address)
    _kept[stream.private_data] = stream.release, state
    stream.release = ctypes.cast(_released, ctypes.c_void_p).value


def _address(capsule: object, name: bytes) -> int:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name) or 0)
