from __future__ import annotations

import pytest

from tidelake.ingest.formats.source_table import SourceTable

POSTGRES = SourceTable("prefix.public.orders", "shop", "public", "orders")
MYSQL = SourceTable("prefix.shop.orders", "shop", None, "orders")
NAMELESS = SourceTable("orders-topic")


@pytest.mark.parametrize(
    ("source", "spellings"),
    [
        (POSTGRES, ("shop.public.orders", "public.orders", "orders", "prefix.public.orders")),
        (MYSQL, ("shop.orders", "orders", "prefix.shop.orders")),
        (NAMELESS, ("orders-topic",)),
        (SourceTable("t", "shop", "public", None), ("t",)),
    ],
)
def test_a_source_table_has_these_spellings(source: SourceTable, spellings: tuple[str, ...]) -> None:
    assert source.spellings == spellings
    assert str(source) == spellings[0]


@pytest.mark.parametrize(
    ("source", "pattern", "fits"),
    [
        (POSTGRES, "public.orders", True),
        (POSTGRES, "orders", True),
        (POSTGRES, "*.orders", True),
        (POSTGRES, "public.*", True),
        (POSTGRES, "prefix.public.orders", True),
        (POSTGRES, "order", False),
        (POSTGRES, "PUBLIC.ORDERS", False),
        (POSTGRES, "old.orders", False),
        (MYSQL, "shop.o[r]ders", True),
        (NAMELESS, "orders*", True),
        (NAMELESS, "orders", False),
    ],
)
def test_a_pattern_fits_a_whole_spelling_and_case_counts(source: SourceTable, pattern: str, fits: bool) -> None:
    assert source.matches(pattern) is fits
