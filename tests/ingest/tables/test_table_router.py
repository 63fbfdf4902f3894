"""Which table receives which records."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.ingest.pipeline.fakes import SCHEMA
from tidelake.errors import BadInput
from tidelake.ingest.formats.base import Target
from tidelake.ingest.formats.source_table import SourceTable
from tidelake.ingest.tables.table_router import Route, TableRouter

ORDERS = SourceTable("pg.shop.public.orders", "shop", "public", "orders")
ITEMS = SourceTable("pg.shop.public.items", "shop", "public", "items")
NAMES = st.sampled_from(["a", "b", "t1", "a*", "[a]", "?", ""])  # a name may look like a pattern
PATTERNS = st.sampled_from(["a", "b", "t1", "a.t1", "a.b.t1", "*", "?1", "t*", "[ab]", "a*", "*.t1", "pg.t1", "]", "!"])


def router(**routes: tuple[list[str], list[str]]) -> TableRouter:
    subject = TableRouter([Route(name, match, topics) for name, (match, topics) in routes.items()])
    for name in routes:
        subject.add_target(Target(name, SCHEMA))
    return subject


@pytest.mark.parametrize(
    "pattern", ["orders", "public.orders", "shop.public.orders", "pg.shop.public.orders", "pg.*.orders", "ord?rs"]
)
def test_a_pattern_may_match_any_form_of_the_source_table_name(pattern: str) -> None:
    target = router(t=([pattern], ["*"])).target_of(ORDERS)
    assert target is not None
    assert target.name == "t"
    assert router(t=([pattern], ["*"])).target_of(ITEMS) is None


def test_one_of_several_patterns_is_enough() -> None:
    subject = router(t=(["orders", "items"], ["*"]))
    assert subject.target_of(ORDERS) is subject.target_of(ITEMS) is not None


def test_a_table_may_be_fed_by_some_topics_only() -> None:
    subject = router(a=(["orders"], ["pg.*"]), b=(["orders"], ["mysql.*"]))
    found = subject.target_of(ORDERS)
    assert found is not None
    assert found.name == "a"
    assert subject.tables_of("pg.shop.public.orders") == ("a",)
    assert subject.tables_of("mysql.x") == ("b",)
    assert subject.tables_of("other") == ()


def test_records_that_two_tables_take_belong_to_both_in_the_order_of_the_configuration() -> None:
    subject = router(a=(["orders"], ["*"]), b=(["*"], ["*"]), c=(["items"], ["*"]))
    assert subject.tables_for(ORDERS) == ("a", "b")
    assert subject.tables_for(ITEMS) == ("b", "c")
    assert subject.sharing("b") == {"a", "c"}
    assert subject.sharing("a") == {"b"}
    assert subject.sources_of("b") == {"shop.public.orders", "shop.public.items"}


def test_who_writes_a_record_to_one_table_only_refuses_records_of_two() -> None:
    with pytest.raises(
        BadInput, match=r"a and b both match the records of shop\.public\.orders, but only one table is expected"
    ):
        router(a=(["orders"], ["*"]), b=(["*"], ["*"])).table_of(ORDERS)


@given(
    st.lists(st.tuples(st.lists(PATTERNS, min_size=1, max_size=3), st.sampled_from(["*", "pg.*", "t1"])), max_size=6),
    st.builds(SourceTable, st.sampled_from(["t1", "pg.t1"]), *[st.none() | NAMES] * 3),
)
def test_routing_equals_checking_every_table(matches: list[tuple[list[str], str]], source: SourceTable) -> None:
    routes = [Route(f"r{number}", match, [topic]) for number, (match, topic) in enumerate(matches)]
    assert TableRouter(routes).tables_for(source) == tuple(route.table for route in routes if route.accepts(source))


def test_only_one_of_many_tables_with_a_named_source_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def accepts(route: Route, source: SourceTable) -> bool:
        asked.append(route.table)
        return any(map(source.matches, route.match))

    monkeypatch.setattr(Route, "accepts", accepts)
    subject = TableRouter([Route(f"t{number}", [f"public.t{number}"]) for number in range(100)])
    assert subject.table_of(SourceTable("topic", "shop", "public", "t42")) == "t42"
    assert asked == ["t42"]


def test_a_table_that_does_not_exist_yet_receives_no_records() -> None:
    subject = TableRouter([Route("t", ["orders"])])
    assert (subject.target_of(ORDERS), subject.table_of(ORDERS), subject.tables) == (None, "t", ["t"])
    subject.add_target(Target("t", SCHEMA))
    assert subject.target_of(ORDERS) is not None
