"""The objects that `catalog.table` returns for other kinds of tables: format tables, object tables, migrations."""
