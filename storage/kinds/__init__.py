"""Tables of other kinds: folders of files, and tables that show a table's metadata."""
