"""The format `json`: each record is an object of columns, and is a row."""
