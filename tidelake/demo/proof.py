"""Whether a table is the shop's table: row by row, value by value."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from storage.plain_values import plain_rows
from tidelake.demo.shop import ShopTable

_DIFFERENCES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """checksum: of all rows in key order. differences: a few, in words; empty if the table is right."""

    table: ShopTable
    rows: int
    rows_expected: int
    checksum: str
    checksum_expected: str
    differences: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return not self.differences and self.checksum == self.checksum_expected


def compare(table: ShopTable, found: pa.Table, expected: pa.Table) -> Verdict:
    """found: rows in any order. expected: in the order of keys."""
    found_rows = plain_rows(found.sort_by([(column, "ascending") for column in table.primary_key]))
    expected_rows = plain_rows(expected)
    return Verdict(
        table,
        len(found_rows),
        len(expected_rows),
        _checksum(found_rows),
        _checksum(expected_rows),
        () if found_rows == expected_rows else tuple(_differences(table, found_rows, expected_rows)),
    )


def _checksum(rows: list[dict[str, Any]]) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(repr(row).encode())
    return digest.hexdigest()[:16]


def _differences(table: ShopTable, found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[str]:
    there = {table.key_of(row): row for row in found}
    wanted = {table.key_of(row): row for row in expected}
    told = [f"missing: {wanted[key]}" for key in wanted if key not in there]
    told += [f"too much: {there[key]}" for key in there if key not in wanted]
    told += [f"{wanted[k]} in the shop, {there[k]} here" for k in wanted if k in there and there[k] != wanted[k]]
    if len(there) < len(found):
        told.append(f"{len(found) - len(there)} keys occur twice")
    return told[:_DIFFERENCES_SHOWN] or ["the order of columns differs"]
