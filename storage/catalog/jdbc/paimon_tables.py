"""The tables of a catalog's database, as Java Paimon creates them. Their names and types must never change.

Source: Java `jdbc/JdbcUtils.java`, `jdbc/*DistributedLockDialect.java`.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import TIMESTAMP, BigInteger, Column, MetaData, PrimaryKeyConstraint, String, Table, Text, inspect, text
from sqlalchemy.exc import IntegrityError

from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress

PROPERTY_VALUE_LENGTH: Final = 1000

_NAME_LENGTH: Final = 255


def _name(key: str) -> Column[str]:
    return Column(key, String(_NAME_LENGTH), nullable=False)


def _value() -> Column[str]:
    return Column("property_value", String(PROPERTY_VALUE_LENGTH))


_CATALOG: Final = MetaData()

TABLES: Final = Table(
    "paimon_tables",
    _CATALOG,
    _name("catalog_key"),
    _name("database_name"),
    _name("table_name"),
    PrimaryKeyConstraint("catalog_key", "database_name", "table_name"),
)
DATABASE_PROPERTIES: Final = Table(
    "paimon_database_properties",
    _CATALOG,
    _name("catalog_key"),
    _name("database_name"),
    _name("property_key"),
    _value(),
    PrimaryKeyConstraint("catalog_key", "database_name", "property_key"),
)
TABLE_PROPERTIES: Final = Table(
    "paimon_table_properties",
    _CATALOG,
    _name("catalog_key"),
    _name("database_name"),
    _name("table_name"),
    _name("property_key"),
    _value(),
    PrimaryKeyConstraint("catalog_key", "database_name", "table_name", "property_key"),
)
VIEWS: Final = Table(
    "paimon_views",
    _CATALOG,
    _name("catalog_key"),
    _name("database_name"),
    _name("view_name"),
    Column("view_schema", Text, nullable=False),
    PrimaryKeyConstraint("catalog_key", "database_name", "view_name"),
)


def locks_table(key_length_max: int) -> Table:
    """Return the table of locks.

    key_length_max: the maximum length of `lock_id`, which contains a table's full name (catalog option
        `lock-key-max-length`).
    """
    return Table(
        "paimon_distributed_locks",
        MetaData(),
        Column("lock_id", String(key_length_max), nullable=False),
        Column("acquired_at", TIMESTAMP, server_default=text("CURRENT_TIMESTAMP"), nullable=False),
        Column("expire_time_seconds", BigInteger, server_default=text("0"), nullable=False),
        PrimaryKeyConstraint("lock_id"),
    )


def make_tables(address: DatabaseAddress, lock_key_length_max: int | None) -> None:
    """Create the tables that are missing. Other processes may create them at the same time.

    lock_key_length_max: see `locks_table`. None if the catalog takes no locks; then the table of locks is not created.
    """
    wanted = list(_CATALOG.sorted_tables)
    if lock_key_length_max is not None:
        wanted.append(locks_table(lock_key_length_max))
    existing = _table_names(address)
    if address.system == "sqlite" and not existing:
        with address.transaction() as connection:
            # Java's catalog leaves a read transaction open. Without this mode it would block Java's own commits.
            connection.execute(text("PRAGMA journal_mode = WAL"))
    for table in wanted:
        if table.name in existing:
            continue
        try:
            with address.transaction() as connection:
                table.create(connection)
        except (OSError, IntegrityError):  # PostgreSQL reports a lost race as a duplicate row of its own catalog
            if table.name not in _table_names(address):
                raise


def _table_names(address: DatabaseAddress) -> set[str]:
    with address.transaction() as connection:
        return set(inspect(connection).get_table_names())
