"""Columns that a table takes, leaves out, renames and masks, and the rows of its filter, in a pipeline."""

from __future__ import annotations

import hmac
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ingest.evolution.test_ddl import ALL, canal
from tests.ingest.evolution.world import TOPIC, EvolvingWorld
from tests.support.levels import examples
from tidelake.errors import BadInput, ConfigError, RecordRefused, UnsupportedFeature

SALT: Final = "pepper"
TYPES: Final = {"id": "INT", "email": "STRING", "country": "STRING", "n": "INT"}


def with_table(settings: str, more: str = "") -> EvolvingWorld:
    return EvolvingWorld(f"mask_salt: {SALT}{more and ', ' + more}", table_settings=settings)


def hashed(text: str) -> str:
    return hmac.digest(SALT.encode(), text.encode(), "sha256").hex()


def stored_bytes(world: EvolvingWorld) -> bytes:
    """Everything that the pipeline stored, wherever it is."""
    found: list[bytes] = []
    folders = [world.warehouse]
    while folders:
        for entry in world.store.list_directory(folder := folders.pop()):
            path = f"{folder}/{entry.name}"
            (folders.append(path) if entry.is_directory else found.append(world.store.read(path)))
    return b"\n".join(found)


# ---------------------------------------------------------------- columns


@pytest.mark.parametrize(
    ("settings", "columns"),
    [
        ("drop_columns: [email, unheard_of]", ["id", "country", "n"]),
        ("keep_columns: [id, n]", ["id", "n"]),
        ("rename_columns: {id: nr, n: number}", ["nr", "email", "country", "number"]),
        ("keep_columns: [id, n], rename_columns: {n: number}", ["id", "number"]),
        ("drop_columns: [email], rename_columns: {n: email}, columns: {email: BIGINT}", ["id", "country", "email"]),
    ],
    ids=lambda case: case if isinstance(case, str) else "",
)
def test_a_table_takes_the_columns_of_its_records_that_its_settings_name(settings: str, columns: list[str]) -> None:
    world = with_table(settings)
    world.add({"id": 1, "email": "a@x.org", "country": "de", "n": 7}, TYPES)
    world.run()
    assert list(world.columns) == columns


def test_dropped_columns_stay_away_when_columns_are_added_and_renamed_ones_widen_under_their_new_name() -> None:
    world = with_table("drop_columns: [email], rename_columns: {n: number}")
    world.add({"id": 1, "n": 7}, {"id": "INT", "n": "INT"})
    world.add({"id": 2, "n": 1 << 40, "email": "a@x.org", "w": "new"}, {**TYPES, "n": "BIGINT", "w": "STRING"})
    world.run()
    assert world.columns == {"id": "INT", "number": "BIGINT", "w": "STRING"}
    assert [(row["id"], row["number"], row["w"]) for row in world.rows()] == [(1, 7, None), (2, 1 << 40, "new")]


def test_an_unavailable_value_of_a_renamed_column_stays() -> None:
    world = with_table("rename_columns: {v: text}, masks: {text: hash}")
    world.add({"id": 1, "v": "abc", "w": "a"})
    world.add({"id": 1, "v": "__debezium_unavailable_value", "w": "b"}, op="u")
    world.run()
    assert world.rows() == [{"id": "1", "text": hashed("abc"), "w": "b"}]


def test_a_new_column_that_takes_the_name_of_a_renamed_one_stops_the_table() -> None:
    world = with_table("rename_columns: {n: number}")
    world.add({"id": 1, "n": 7}, {"id": "INT", "n": "INT"})
    world.add({"id": 2, "n": 8, "number": 9}, {"id": "INT", "n": "INT", "number": "INT"})
    with pytest.raises(RecordRefused, match="another column was renamed to this name"):
        world.run()
    assert [row["number"] for row in world.rows()] == [7]


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize(
    ("mask", "value", "expected"),
    [
        ("hash", "a@x.org", hashed("a@x.org")),
        ("redact", "a@x.org", "***"),
        ("redact", "", "***"),
        ("truncate(2)", "äöü", "äö"),
        ("truncate(0)", "äöü", ""),
        ("keep_last(4)", "DE89370400440532013000", "*" * 18 + "3000"),
        ("keep_last(4)", "3000", "****"),
        ("keep_last(1)", "a😀", "*😀"),
        ("'null'", "a@x.org", None),
        ("hash", None, None),
        ("redact", None, None),
        ("keep_last(2)", None, None),
    ],
)
def test_a_mask_leaves_of_a_text_what_it_says(mask: str, value: str | None, expected: str | None) -> None:
    world = with_table(f"masks: {{email: {mask}}}")
    world.add({"id": 1, "email": value, "country": "de", "n": 7}, TYPES)
    world.run()
    assert world.rows()[0]["email"] == expected


def test_equal_values_have_equal_hashes_and_a_hashed_key_finds_its_row() -> None:
    world = with_table("masks: {id: hash}")
    for op, n in (("c", 1), ("u", 2), ("u", 3)):
        world.add({"id": "a@x.org", "n": n}, op=op)
    world.add({"id": "b@x.org", "n": 1})
    world.add({"id": "b@x.org", "n": 1}, op="d")
    world.run()
    assert world.rows() == [{"id": hashed("a@x.org"), "n": "3"}]


def test_nothing_that_is_stored_or_logged_shows_a_masked_value(caplog: pytest.LogCaptureFixture) -> None:
    secret = "secret-mail@x.org"
    world = with_table(
        "masks: {email: hash}, columns: {n: INT}", "errors: {tolerance: all, log_include_messages: true}"
    )
    with caplog.at_level("DEBUG"):
        world.add({"id": 1, "email": secret, "country": "de", "n": 1})
        world.add({"id": 2, "email": secret, "country": "de", "n": secret})  # can't be decoded
        world.log.append("x.public.orders", b'{"payload": broken ' + secret.encode(), b"{}", 0)  # of no known table
        world.add({"id": 3, "email": secret, "country": "de", "n": 3})
        world.run()
    assert [row["id"] for row in world.rows()] == ["1", "3"]
    assert len(world.dead_letters()) == 2
    assert secret.encode() not in stored_bytes(world)
    logged = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "dead letter" in logged
    assert secret not in logged


def test_the_refusal_of_a_record_doesn_t_show_its_values() -> None:
    world = with_table("masks: {email: hash}, columns: {n: INT}")
    world.add({"id": 1, "email": "secret", "n": "secret"})
    with pytest.raises(RecordRefused, match="is not shown because tables of the pipeline mask columns") as refused:
        world.run()
    assert "secret" not in str(refused.value)


def test_a_masked_column_that_the_source_renames_stops_the_table() -> None:
    world = EvolvingWorld(f"{ALL % 'evolve'}, format: canal-json", "masks: {mail: 'null'}, primary_key: [id]")
    canal(world, id=1, mail=7)
    canal(world, "ALTER TABLE orders RENAME COLUMN mail TO address")
    canal(world, id=2, address=8)
    with pytest.raises(RecordRefused, match=r"rename_columns: \{address: mail\}"):
        world.run()
    world.table_settings += ", rename_columns: {address: mail}"
    world.run(skip=[f"{TOPIC}:0:1"])
    assert [(row["id"], row["mail"]) for row in world.rows()] == [(1, None), (2, None)]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("masks: {email: rot13}", "'rot13' is none of hash, redact, null, truncate"),
        ("masks: {email: truncate}", "'truncate' is none of"),
        ("keep_columns: [id], drop_columns: [id]", "in `keep_columns` and in `drop_columns`"),
        ("rename_columns: {a: x, b: x}", "two columns are renamed to x"),
        ("drop_columns: [a], rename_columns: {a: x}", "column a is renamed, but left out"),
        ("filter: 'n >'", "condition"),
    ],
)
def test_settings_that_make_no_sense_are_refused_with_the_configuration(settings: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        with_table(settings).run()


def test_a_hash_without_a_salt_is_refused() -> None:
    with pytest.raises(ConfigError, match="TIDELAKE_MASK_SALT"):
        EvolvingWorld(table_settings="masks: {email: hash}").run()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ("masks: {emial: hash}", BadInput, "lacks the column emial, which `masks` names; did you mean 'email'"),
        ("masks: {n: redact}", BadInput, "the mask redact is for texts, but column n is INT"),
        ("masks: {id: 'null'}", BadInput, "column id is NOT NULL"),
        ("drop_columns: [email]", BadInput, "has the column email, which `keep_columns` or `drop_columns` leaves out"),
        ("filter: 'm > 3'", BadInput, "names m, which is not a column of its records"),
        ("filter: \"n = 'x'\"", BadInput, "n"),
    ],
)
def test_an_unsuitable_table_is_refused_at_the_start(settings: str, error: type[Exception], message: str) -> None:
    world = with_table(settings)
    world.create(TYPES)
    with pytest.raises(error, match=message):
        world.run()


def test_a_mask_that_would_merge_rows_is_refused_for_a_key() -> None:
    world = with_table("masks: {email: redact}, primary_key: [email], key_from_records: false")
    world.add({"id": 1, "email": "a"}, {"id": "INT", "email": "STRING"})
    with pytest.raises(BadInput, match="redact would merge rows"):
        world.run()


# ---------------------------------------------------------------- the filter


@pytest.mark.parametrize(
    "options",
    ["merge-engine: first-row", "changelog-producer: input", "ignore-delete: true", "merge-engine: partial-update"],
)
def test_a_filter_is_refused_for_a_table_that_can_t_delete_by_key(options: str) -> None:
    world = EvolvingWorld(table_settings="filter: 'n > 1'")
    world.table_settings += f", columns: {{n: INT}}, options: {{bucket: 1, {options}}}"
    world.add({"id": 1, "n": 2})
    with pytest.raises((UnsupportedFeature, ConfigError), match=r"filter|twice"):
        world.run()


def test_a_row_that_stops_matching_is_deleted_and_one_that_starts_appears() -> None:
    world = EvolvingWorld(table_settings="filter: 'n > 1', columns: {n: INT}")
    world.add({"id": 1, "n": 2})
    world.add({"id": 2, "n": 1})
    world.add({"id": 3, "n": None})
    world.run()
    assert [row["id"] for row in world.rows()] == ["1"]
    world.add({"id": 1, "n": 0}, op="u")
    world.add({"id": 2, "n": 5}, op="u")
    world.run()
    assert [(row["id"], row["n"]) for row in world.rows()] == [("2", 5)]


def test_a_filter_sees_values_before_they_are_masked_and_columns_by_their_new_names() -> None:
    world = with_table("filter: \"mail like '%@x.org'\", rename_columns: {email: mail}, masks: {mail: redact}")
    world.add({"id": 1, "email": "a@x.org"})
    world.add({"id": 2, "email": "a@y.org"})
    world.run()
    assert world.rows() == [{"id": "1", "mail": "***"}]


def test_an_update_that_leaves_out_a_value_of_the_filter_is_refused_by_name() -> None:
    world = EvolvingWorld(table_settings="filter: \"v = 'abc'\"")
    world.add({"id": 1, "v": "abc", "w": "a"})
    world.add({"id": 1, "v": "__debezium_unavailable_value", "w": "b"}, op="u")
    with pytest.raises(RecordRefused, match=r"needs column v, which the record leaves out .* FULL"):
        world.run()


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("cud"), st.none() | st.integers(0, 3)), max_size=30),
    st.integers(1, 7),
)
def test_a_filtered_table_is_the_view_of_the_whole_table(
    changes: list[tuple[int, str, int | None]], batch: int
) -> None:
    """The fold of the same changes, filtered at its end, has the same rows."""
    world = EvolvingWorld(table_settings="filter: 'n >= 2 or n is null', columns: {id: INT, n: INT}")
    rows: dict[int, int | None] = {}
    for key, op, n in changes:
        world.add({"id": key, "n": n}, op=op)
        if op == "d":
            rows.pop(key, None)
        else:
            rows[key] = n
    world.run(batch_records=batch)
    if any(op != "d" for _, op, _ in changes):
        expected = [{"id": key, "n": n} for key, n in sorted(rows.items()) if n is None or n >= 2]
        assert world.rows() == expected
