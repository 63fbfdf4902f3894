"""Following a table: where a reader of changes begins, and which snapshot comes next."""
