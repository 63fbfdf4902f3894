"""Stores databases, tables, views and properties as rows.

Source: Java `jdbc/JdbcUtils.java`, `jdbc/JdbcCatalog.java`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from tidelake.storage.catalog.jdbc.database_address import DatabaseAddress
from tidelake.storage.catalog.jdbc.paimon_tables import DATABASE_PROPERTIES, TABLE_PROPERTIES, TABLES, VIEWS

_EXISTS = "exists"  # the property that marks a database as created, so that it has a row even without tables


@dataclass(frozen=True, slots=True)
class NameStore:
    """The names of one catalog. Each call is a transaction.

    catalog_key: the name of the catalog. One database may hold several catalogs.
    """

    address: DatabaseAddress
    catalog_key: str

    # ------------------------------------------------------------ databases

    def databases(self) -> list[str]:
        """Return the databases that have a table, a view or a property, sorted."""
        with self.address.transaction() as connection:
            found: set[str] = set()
            for table in (TABLES, DATABASE_PROPERTIES, VIEWS):
                named = select(table.c.database_name).where(table.c.catalog_key == self.catalog_key).distinct()
                found.update(connection.scalars(named))
        return sorted(found)

    def has_database(self, database: str) -> bool:
        with self.address.transaction() as connection:
            return any(
                connection.execute(select(t.c.database_name).where(self._in(t, database)).limit(1)).first()
                for t in (TABLES, DATABASE_PROPERTIES, VIEWS)
            )

    def add_database(self, database: str, location: str) -> bool:
        """Return False if the database exists."""
        properties = {_EXISTS: "true", "location": location}
        try:
            with self.address.transaction() as connection:
                connection.execute(insert(DATABASE_PROPERTIES), self._property_rows(properties, database_name=database))
        except IntegrityError:
            return False
        return True

    def drop_database(self, database: str) -> None:
        """Remove the database with the names of its tables and views."""
        with self.address.transaction() as connection:
            for table in (TABLES, DATABASE_PROPERTIES, TABLE_PROPERTIES, VIEWS):
                connection.execute(delete(table).where(self._in(table, database)))

    # ------------------------------------------------------------ tables

    def tables(self, database: str) -> list[str]:
        """Return the names of the tables, sorted."""
        return self._names(TABLES, TABLES.c.table_name, database)

    def views(self, database: str) -> list[str]:
        """Return the names of the views, sorted."""
        return self._names(VIEWS, VIEWS.c.view_name, database)

    def has_table(self, database: str, table: str) -> bool:
        with self.address.transaction() as connection:
            return connection.execute(select(TABLES).where(self._of_table(TABLES, database, table))).first() is not None

    def has_view(self, database: str, view: str) -> bool:
        return self.view_schema(database, view) is not None

    def add_table(self, database: str, table: str, properties: Mapping[str, str]) -> bool:
        """Return False if the table exists."""
        try:
            with self.address.transaction() as connection:
                row = {"catalog_key": self.catalog_key, "database_name": database, "table_name": table}
                connection.execute(insert(TABLES), [row])
                self._set_properties(connection, database, table, properties)
        except IntegrityError:
            return False
        return True

    def drop_table(self, database: str, table: str) -> None:
        with self.address.transaction() as connection:
            for rows in (TABLES, TABLE_PROPERTIES):
                connection.execute(delete(rows).where(self._of_table(rows, database, table)))

    def rename_table(self, database: str, table: str, new_database: str, new_table: str) -> bool:
        """Return False if a table has the new name."""
        named = {"database_name": new_database, "table_name": new_table}
        try:
            with self.address.transaction() as connection:
                for rows in (TABLES, TABLE_PROPERTIES):
                    connection.execute(update(rows).where(self._of_table(rows, database, table)).values(named))
        except IntegrityError:
            return False
        return True

    def properties(self, database: str, table: str) -> dict[str, str]:
        of_table = self._of_table(TABLE_PROPERTIES, database, table)
        columns = (TABLE_PROPERTIES.c.property_key, TABLE_PROPERTIES.c.property_value)
        with self.address.transaction() as connection:
            return {str(key): str(value) for key, value in connection.execute(select(*columns).where(of_table))}

    def set_properties(self, database: str, table: str, properties: Mapping[str, str]) -> None:
        """Replace the properties of the table."""
        with self.address.transaction() as connection:
            self._set_properties(connection, database, table, properties)

    # ------------------------------------------------------------ views

    def view_schema(self, database: str, view: str) -> str | None:
        """Return the view's definition as JSON. None if the view does not exist."""
        with self.address.transaction() as connection:
            found = connection.scalar(select(VIEWS.c.view_schema).where(self._of_view(database, view)))
        return None if found is None else str(found)

    def add_view(self, database: str, view: str, schema: str) -> bool:
        """Return False if a table or a view has this name."""
        row = {"catalog_key": self.catalog_key, "database_name": database, "view_name": view, "view_schema": schema}
        try:
            with self.address.transaction() as connection:
                if connection.execute(select(TABLES).where(self._of_table(TABLES, database, view))).first():
                    return False
                connection.execute(insert(VIEWS), [row])
        except IntegrityError:
            return False
        return True

    def drop_view(self, database: str, view: str) -> None:
        with self.address.transaction() as connection:
            connection.execute(delete(VIEWS).where(self._of_view(database, view)))

    def rename_view(self, database: str, view: str, new_database: str, new_view: str) -> bool:
        """Return False if a table or a view has the new name."""
        named = {"database_name": new_database, "view_name": new_view}
        try:
            with self.address.transaction() as connection:
                if connection.execute(select(TABLES).where(self._of_table(TABLES, new_database, new_view))).first():
                    return False
                connection.execute(update(VIEWS).where(self._of_view(database, view)).values(named))
        except IntegrityError:
            return False
        return True

    # ------------------------------------------------------------ rows

    def _set_properties(self, connection: Connection, database: str, table: str, properties: Mapping[str, str]) -> None:
        connection.execute(delete(TABLE_PROPERTIES).where(self._of_table(TABLE_PROPERTIES, database, table)))
        if properties:
            rows = self._property_rows(properties, database_name=database, table_name=table)
            connection.execute(insert(TABLE_PROPERTIES), rows)

    def _property_rows(self, properties: Mapping[str, str], **names: str) -> list[dict[str, str]]:
        of = {"catalog_key": self.catalog_key, **names}
        return [{**of, "property_key": key, "property_value": value} for key, value in properties.items()]

    def _names(self, table: Table, column: ColumnElement[str], database: str) -> list[str]:
        with self.address.transaction() as connection:
            return sorted(connection.scalars(select(column).where(self._in(table, database))))

    def _in(self, table: Table, database: str) -> ColumnElement[bool]:
        return and_(table.c.catalog_key == self.catalog_key, table.c.database_name == database)

    def _of_view(self, database: str, view: str) -> ColumnElement[bool]:
        return and_(self._in(VIEWS, database), VIEWS.c.view_name == view)

    def _of_table(self, rows: Table, database: str, table: str) -> ColumnElement[bool]:
        return and_(self._in(rows, database), rows.c.table_name == table)
