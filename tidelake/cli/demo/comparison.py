"""Compares a table with the shop's rows, row by row and value by value."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tidelake.cli.demo.shop import ShopTable
from tidelake.storage.model.types.json_values import json_rows

_DIFFERENCES_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class TableComparison:
    """The result of a comparison.

    checksum: of all rows in key order
    differences: the first few, in words; empty if the table is right
    """

    table: ShopTable
    rows: int
    rows_expected: int
    checksum: str
    checksum_expected: str
    differences: tuple[str, ...]

    @property
    def is_right(self) -> bool:
        return not self.differences and self.checksum == self.checksum_expected


def compare_table(table: ShopTable, found: pa.Table, expected: pa.Table) -> TableComparison:
    """Compare a table with the expected rows.

    found: rows in any order
    expected: in the order of keys
    """
    found_rows = json_rows(found.sort_by([(column, "ascending") for column in table.primary_key]))
    expected_rows = json_rows(expected)
    return TableComparison(
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
    actual = {table.key_of(row): row for row in found}
    wanted = {table.key_of(row): row for row in expected}
    differences = [f"missing: {wanted[key]}" for key in wanted if key not in actual]
    differences += [f"unexpected: {actual[key]}" for key in actual if key not in wanted]
    differences += [
        f"{wanted[k]} in the shop, {actual[k]} in the table" for k in wanted if k in actual and actual[k] != wanted[k]
    ]
    if len(actual) < len(found):
        differences.append(f"{len(found) - len(actual)} keys occur twice")
    return differences[:_DIFFERENCES_SHOWN] or ["the order of columns differs"]
