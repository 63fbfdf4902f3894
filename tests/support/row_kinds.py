"""Row kinds in test cases: +I, -U, +U, -D."""

from __future__ import annotations

from tidelake.storage.model.format import RowKind


def row_kind_of(symbol: str) -> RowKind:
    return RowKind(("+I", "-U", "+U", "-D").index(symbol))
