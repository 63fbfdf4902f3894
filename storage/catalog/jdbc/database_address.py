"""The address of a catalog's database: `jdbc:sqlite:/data/catalog.db`, `jdbc:postgresql://host:5432/lake`.

The URI has Java's syntax, so that one configuration works for both. The properties that a URI or a `jdbc.` option sets
for Java's driver are translated here, or refused.

Source: Java `jdbc/JdbcClientPool.java`, `jdbc/JdbcUtils.java` (extractJdbcConfiguration).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.options.values import INT, one_of

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

DRIVER_PREFIX: Final = "jdbc."

_URI: Final = re.compile(r"jdbc:([a-z]+):(.+)", re.DOTALL)
_EXAMPLES: Final = "write jdbc:sqlite:/path/catalog.db or jdbc:postgresql://host:5432/database"
_SQLITE_BUSY_S: Final = 60.0
# Properties of Java's driver that are pragmas of SQLite, and the check of each value.
_SQLITE_PRAGMAS: Final = {"journal_mode": one_of("delete", "truncate", "persist", "wal"), "busy_timeout": INT}
# Property of Java's driver -> libpq's name of it.
_POSTGRESQL_PROPERTIES: Final = {
    "user": "user",
    "password": "password",
    "sslmode": "sslmode",
    "sslrootcert": "sslrootcert",
    "sslcert": "sslcert",
    "sslkey": "sslkey",
    "connectTimeout": "connect_timeout",
    "ApplicationName": "application_name",
}


@dataclass(frozen=True, slots=True)
class DatabaseAddress:
    """The address of a database, with the properties of its connections.

    It can be pickled; a copy opens its own connections.

    system: `sqlite` or `postgresql`.
    shown: the URI without secrets, for messages.
    url: the address for sqlalchemy.
    properties: properties of the Python driver, by the driver's names.
    pool_size: the number of connections that are kept open.
    """

    system: str
    shown: str
    url: str = field(repr=False)
    properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    pool_size: int = 2

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DatabaseAddress:
        """Read the address from the options of the catalog.

        options: `uri`, `jdbc.user`, `jdbc.password`, …, `client-pool-size`.

        Raises BadInput for an invalid URI. Raises UnsupportedFeature for other databases, and for properties without a
        translation.
        """
        uri = options.get("uri", "").strip()
        if not uri:
            raise BadInput(f"catalog option uri is missing: metastore = jdbc needs it; {_EXAMPLES}")
        match = _URI.fullmatch(uri)
        if match is None:
            raise BadInput(f"catalog option uri is not the address of a database; {_EXAMPLES}")
        system, rest = match[1], match[2]
        given = {k.removeprefix(DRIVER_PREFIX): v for k, v in options.items() if k.startswith(DRIVER_PREFIX)}
        pool_size = max(1, CatalogValues(options).client_pool_size)
        if system == "sqlite":
            return cls._sqlite(rest, given, pool_size)
        if system == "postgresql":
            return cls._postgresql(rest, given, pool_size)
        raise UnsupportedFeature(
            f"catalog option uri = jdbc:{system}:…", "only SQLite and PostgreSQL are supported", _EXAMPLES
        )

    @classmethod
    def _sqlite(cls, rest: str, given: Mapping[str, str], pool_size: int) -> DatabaseAddress:
        """SQLite ignores user and password. They are accepted here, because Java's driver accepts them."""
        known = frozenset({"user", "password", *_SQLITE_PRAGMAS})
        if rest.startswith((":", "file:")) or "?" in rest:
            raise UnsupportedFeature(
                f"catalog option uri = jdbc:sqlite:{rest}",
                "only one process can use a catalog in memory, and parameters are not supported",
                "Name a file: jdbc:sqlite:/path/catalog.db",
            )
        _check_parameters_known(given, known, "SQLite")
        pragmas = {key: str(kind.check(given[key])) for key, kind in _SQLITE_PRAGMAS.items() if key in given}
        path = os.path.abspath(rest)
        return cls("sqlite", f"jdbc:sqlite:{path}", f"sqlite:///{path}", tuple(sorted(pragmas.items())), pool_size)

    @classmethod
    def _postgresql(cls, rest: str, given: Mapping[str, str], pool_size: int) -> DatabaseAddress:
        parts = urlsplit(rest)
        if not rest.startswith("//") or len(parts.path) <= 1 or parts.username is not None or "," in parts.netloc:
            raise BadInput(
                "catalog option uri is not the address of a PostgreSQL database; write "
                "jdbc:postgresql://host:5432/database with one host, and user and password as jdbc.user and "
                "jdbc.password"
            )
        properties = {**dict(parse_qsl(parts.query)), **given}
        _check_parameters_known(properties, frozenset(_POSTGRESQL_PROPERTIES), "PostgreSQL")
        translated = tuple(sorted((_POSTGRESQL_PROPERTIES[key], value) for key, value in properties.items()))
        place = f"//{parts.netloc}{parts.path}"
        return cls("postgresql", f"jdbc:postgresql:{place}", f"postgresql+psycopg:{place}", translated, pool_size)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """Run the block in a transaction, and commit if the block raises no error.

        Raises ConnectionError, with the name of the database, if the database fails. Raises sqlalchemy's IntegrityError
        for a row that already exists.
        """
        engine = _engine(self, os.getpid())
        from sqlalchemy.exc import IntegrityError, SQLAlchemyError  # noqa: PLC0415  # an extra, and heavy

        try:
            with engine.begin() as connection:
                yield connection
        except IntegrityError:
            raise
        except SQLAlchemyError as e:
            cause = getattr(e, "orig", None) or e
            raise ConnectionError(f"catalog database {self.shown}: {str(cause).strip()}") from e


def _set_pragmas(connection: Any, pragmas: Iterable[tuple[str, str]]) -> None:
    for name, value in pragmas:
        connection.execute(f"PRAGMA {name} = {value}")


def check_sqlalchemy() -> None:
    if find_spec("sqlalchemy") is None:
        raise UnsupportedFeature(
            "catalog option metastore = jdbc",
            "it needs the package sqlalchemy",
            "Install it: pip install 'tidelake[jdbc]'",
        )


def _check_parameters_known(given: Mapping[str, str], known: frozenset[str], system: str) -> None:
    for key in given:
        if key not in known:
            raise UnsupportedFeature(
                f"catalog option {DRIVER_PREFIX}{key}",
                f"this property of Java's driver is not supported; for {system} the supported properties are "
                f"{', '.join(sorted(known))}",
                "Leave it out",
            )


@lru_cache(maxsize=64)
def _engine(address: DatabaseAddress, process_id: int) -> Engine:
    """Return the engine of this process: connections don't survive a fork."""
    from sqlalchemy import create_engine, event  # noqa: PLC0415  # an extra, and heavy
    from sqlalchemy.pool import NullPool  # noqa: PLC0415

    if address.system == "sqlite":
        engine = create_engine(address.url, poolclass=NullPool, connect_args={"timeout": _SQLITE_BUSY_S})
        event.listen(engine, "connect", lambda connection, _: _set_pragmas(connection, address.properties))
        return engine
    connect: dict[str, Any] = {**dict(address.properties), "options": f"-c TimeZone={_local_zone()}"}
    try:
        return create_engine(address.url, pool_size=address.pool_size, pool_pre_ping=True, connect_args=connect)
    except ImportError:
        raise UnsupportedFeature(
            f"catalog option uri = {address.shown}",
            "it needs the package psycopg",
            "Install it: pip install 'psycopg[binary]'",
        ) from None


def _local_zone() -> str:
    """Return the current UTC offset of this process, in POSIX notation (west is positive).

    Java's driver sends the time zone of its process to PostgreSQL, and the time of a lock is stored without a zone. A
    process that compared that time in another zone would mistake a fresh lock for an expired one.
    """
    offset = env.local_now().astimezone().utcoffset() or timedelta(0)
    minutes = int(offset.total_seconds()) // 60
    sign = "-" if minutes >= 0 else "+"
    return f"<local>{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}"
