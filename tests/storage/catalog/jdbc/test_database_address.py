"""Database addresses in Java's form."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from tidelake.errors import BadInput, TidelakeError
from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress


@pytest.mark.parametrize(
    ("options", "url", "properties"),
    [
        pytest.param({"uri": "jdbc:sqlite:/data/c.db"}, "sqlite:////data/c.db", {}, id="SQLite"),
        pytest.param(
            {"uri": "jdbc:sqlite:/c.db", "jdbc.user": "u", "jdbc.journal_mode": "WAL"},
            "sqlite:////c.db",
            {"journal_mode": "wal"},
            id="SQLite with a pragma",
        ),
        pytest.param(
            {"uri": "jdbc:postgresql://h:5433/lake?sslmode=require", "jdbc.user": "u", "jdbc.password": "p"},
            "postgresql+psycopg://h:5433/lake",
            {"user": "u", "password": "p", "sslmode": "require"},
            id="PostgreSQL",
        ),
    ],
)
def test_a_uri_of_java_leads_to_the_same_database(
    options: Mapping[str, str], url: str, properties: Mapping[str, str]
) -> None:
    address = DatabaseAddress.of({**options, "client-pool-size": "7"})
    assert (address.url, dict(address.properties), address.pool_size) == (url, properties, 7)
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "uri is missing", id="none"),
        pytest.param({"uri": "/data/c.db"}, "not the address of a database", id="a path"),
        pytest.param({"uri": "jdbc:mysql://h/lake"}, "only SQLite and PostgreSQL", id="another system"),
        pytest.param({"uri": "jdbc:sqlite::memory:"}, "only one process can use", id="in memory"),
        pytest.param({"uri": "jdbc:sqlite:/c.db?cache=shared"}, "Name a file", id="parameters of SQLite"),
        pytest.param({"uri": "jdbc:sqlite:/c.db", "jdbc.cache": "1"}, "jdbc.cache: this property", id="a property"),
        pytest.param({"uri": "jdbc:sqlite:/c.db", "jdbc.journal_mode": "off"}, "one of delete", id="a mode"),
        pytest.param({"uri": "jdbc:postgresql://a,b/lake"}, "with one host", id="two hosts"),
        pytest.param({"uri": "jdbc:postgresql://h"}, "host:5432/database", id="no database"),
        pytest.param({"uri": "jdbc:postgresql://h/l?targetServerType=any"}, "is not supported", id="Java's alone"),
    ],
)
def test_a_uri_without_a_translation_is_refused(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(TidelakeError, match=message):
        DatabaseAddress.of(options)


@pytest.mark.parametrize(
    "options",
    [
        {"uri": "jdbc:postgresql://h/lake?password=secret", "jdbc.password": "secret"},
        {"uri": "jdbc:postgresql://user:secret@h/lake"},
        {"uri": "jdbc:postgresql:secret"},
    ],
)
def test_no_message_shows_a_password(options: Mapping[str, str]) -> None:
    try:
        shown = repr(DatabaseAddress.of(options))
    except BadInput as e:
        shown = str(e)
    assert "secret" not in shown
