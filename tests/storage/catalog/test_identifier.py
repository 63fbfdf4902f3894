"""Table names, parsed and printed."""

from __future__ import annotations

import pytest

from tidelake.errors import BadInput
from tidelake.storage.catalog.identifier import Identifier

GOOD = [
    ("shop.orders", Identifier("shop", "orders")),
    ("shop.orders$branch_dev", Identifier("shop", "orders", "dev")),
    ("shop.orders$snapshots", Identifier("shop", "orders", system_table="snapshots")),
    ("shop.orders$branch_dev$files", Identifier("shop", "orders", "dev", "files")),
    ("shop.orders.2024", Identifier("shop", "orders.2024")),
    ("laden.aufträge 2", Identifier("laden", "aufträge 2")),
    ("sys.tables", Identifier("sys", "tables")),
    ("shop.branch_dev", Identifier("shop", "branch_dev")),
]


@pytest.mark.parametrize(("text", "identifier"), GOOD)
def test_a_name_is_parsed_and_printed(text: str, identifier: Identifier) -> None:
    assert Identifier.parse(text) == identifier
    assert str(identifier) == text


def test_the_main_branch_may_be_named_and_is_not_shown() -> None:
    assert Identifier.parse("shop.orders$branch_main") == Identifier("shop", "orders")
    assert str(Identifier.parse("shop.orders$branch_main$files")) == "shop.orders$files"


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a.b", True), ("a.b$branch_main", True), ("a.b$branch_x", False), ("a.b$files", False)],
)
def test_only_a_whole_table_is_plain(text: str, plain: bool) -> None:
    assert Identifier.parse(text).is_plain is plain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("orders", "not the name of a table: write 'database.table'", id="no database"),
        pytest.param("", "not the name of a table", id="nothing"),
        pytest.param("shop.", "table name ''", id="no table"),
        pytest.param(".orders", "database name ''", id="an empty database"),
        pytest.param("shop. ", "table name ' '", id="a blank table"),
        pytest.param("shop...", "table name '..'", id="the directory above"),
        pytest.param("shop.a/b", "table name 'a/b'.*slash", id="a path"),
        pytest.param("a/b.c", "database name 'a/b'", id="a path to a database"),
        pytest.param("sh$op.orders", r"database name 'sh\$op'", id="a database with a dollar"),
        pytest.param("shop.$files", "table name ''", id="a system table of no table"),
        pytest.param("shop.orders$", "not the name of a table", id="an empty system table"),
        pytest.param("shop.orders$files$branch_dev", "not the name of a table", id="a branch of a system table"),
        pytest.param("shop.orders$branch_a$files$b", "not the name of a table", id="too many parts"),
        pytest.param("shop.orders$branch_", "branch name ''", id="an empty branch"),
        pytest.param("shop.orders$branch_7", "branch name '7'", id="a bare number as branch"),
    ],
)
def test_an_invalid_name_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        Identifier.parse(text)
