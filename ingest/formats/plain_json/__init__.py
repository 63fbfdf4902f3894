"""`json`: objects of columns, each a row."""
