"""What other libraries need of a scan, and whether a library is installed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any, Protocol, Self

import pyarrow as pa

from tidelake.errors import UnsupportedFeature


class Readable(Protocol):
    """A read that can be narrowed: `tidelake.Scan`."""

    @property
    def schema(self) -> pa.Schema: ...
    def select(self, columns: Sequence[str]) -> Self: ...
    def where(self, condition: Any) -> Self: ...
    def limit(self, rows: int) -> Self: ...
    def to_batches(self) -> Iterator[pa.RecordBatch]: ...


def check_installed(package: str, call: str, extra: str | None = None) -> None:
    """Raise UnsupportedFeature unless a package can be imported.

    call: what needs it, as the caller wrote it
    extra: the extra that installs it; None: it has the package's name
    """
    if find_spec(package) is None:
        raise UnsupportedFeature(
            call, f"it needs the package {package}", f"Install it: pip install 'tidelake[{extra or package}]'"
        )
