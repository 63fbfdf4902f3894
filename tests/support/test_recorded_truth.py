"""The comparison finds every difference."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from tests.support.change_replay import fold_recording, target_of
from tests.support.database_text import same_value
from tests.support.recorded_truth import RecordedTable, differences, own_recorded
from tidelake.ingest.formats.debezium.debezium_json_decoder import DebeziumJsonDecoder


def _final(recorded: RecordedTable) -> pa.Table:
    target = target_of(recorded)
    return fold_recording(recorded, DebeziumJsonDecoder(lambda source: target), target).table()


def _with_cell(table: pa.Table, column: str, cell: object) -> pa.Table:
    place = table.schema.get_field_index(column)
    cells = pa.concat_arrays([pa.array([cell], table[column].type), table[column].combine_chunks()[1:]])
    return table.set_column(place, table.schema.field(place), cells)


DAMAGE: dict[str, tuple[Callable[[pa.Table], pa.Table], str]] = {
    "nothing": (lambda table: table, ""),
    "the order of rows": (lambda table: table.take(list(range(len(table)))[::-1]), ""),
    "a row is gone": (lambda table: table[1:], "row missing: id="),
    "a row came back": (
        lambda table: pa.concat_tables([table, _with_cell(table[:1], "id", -1)]),
        "row too many: id=-1",
    ),
    "a row is there twice": (lambda table: pa.concat_tables([table, table[:1]]), "1 keys occur twice"),
    "a text": (lambda table: _with_cell(table, "currency", "XXX"), "currency is 'XXX', not "),
    "a null": (lambda table: _with_cell(table, "status", None), "status is None, not "),
    "a digit of a decimal": (lambda table: _with_cell(table, "total", 1), "total is Decimal('1.0000'), not "),
    "a microsecond": (lambda table: _with_cell(table, "placed_at", 1), "placed_at is 1, not "),
}


@pytest.mark.parametrize(("damage", "reported"), DAMAGE.values(), ids=DAMAGE.keys())
def test_every_difference_is_reported(damage: Callable[[pa.Table], pa.Table], reported: str) -> None:
    recorded = own_recorded("pg-shop/json-plain/orders")
    found = differences(recorded, damage(_final(recorded)))
    assert len(found) == bool(reported)
    assert all(reported in difference for difference in found)


def test_rows_of_a_table_without_key_are_counted() -> None:
    recorded = own_recorded("mysql-shop/json-plain/audit")
    final = _final(recorded)
    assert differences(recorded, final) == []
    assert differences(recorded, final[1:]) != []
    assert differences(recorded, pa.concat_tables([final, final[:1]])) != []


def test_an_accepted_difference_applies_only_to_its_own_case() -> None:
    recorded = own_recorded("mysql-shop/json-plain/carts")
    final = _final(recorded)
    row = final["channel"].to_pylist().index(None)
    changed = pa.concat_tables([_with_cell(final[row : row + 1], "channel", "shop"), final[:row], final[row + 1 :]])
    assert [difference.partition(": ")[2] for difference in differences(recorded, changed)] == [
        "channel is 'shop', not 'web'"
    ]


@pytest.mark.parametrize(
    ("database_type", "printed", "held", "same"),
    [
        ("real", "0.1", 0.10000000149011612, True),
        ("real", "0.1", 0.2, False),
        ("double precision", "-0", -0.0, True),
        ("double precision", "-0", 0.0, False),
        ("double precision", "NaN", float("nan"), True),
        ("money", "-$1,000.00", "-1000.00", True),
        ("bit(12)", "000000000011", "000000000011", True),
        ("time with time zone", "23:59:59.5-05:30", "05:29:59.5Z", True),
        ("interval", "P-1M", -2_629_800_000_000, True),
        ("interval", "P1Y2M3DT4H5M6.789S", "P1Y2M3DT4H5M6.789S", True),
        ("text[]", '{"x,y","q\\"uote",NULL,""}', ["x,y", 'q"uote', None, ""], True),
        ("hstore", '"n"=>NULL, "k k"=>"v, v"', [("k k", "v, v"), ("n", None)], True),
        ("set('S','L')", "S,L", ["S", "L"], True),
        ("set('S','L')", "", [], True),
        ("point", "POINT(1.5 -2)", {"x": 1.5, "y": -2.0, "wkb": b"", "srid": None}, True),
        ("point", "(1.5,-2)", '{"x":1.5,"y":-2.0,"wkb":"AQE4","srid":null}', True),
        ("time(6)", "-00:00:01.500000", -1_500_000, True),
        ("text", "", None, False),
        ("text", None, "", False),
    ],
)
def test_a_printed_value_is_compared_by_its_meaning(
    database_type: str, printed: str | None, held: object, same: bool
) -> None:
    assert same_value(database_type, printed, held) is same
