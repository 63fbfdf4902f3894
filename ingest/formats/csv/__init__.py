"""The format `csv`: each record is a line of comma-separated values, and is a row."""
