"""How rows of one key become one row, in columns."""
