"""The versions of a table's schema: what one holds, and the files they are stored in."""
