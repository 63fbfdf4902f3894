"""The versions of a table's schema, and the files in which they are stored."""
