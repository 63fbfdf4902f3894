"""Reads data files with Spark's own Parquet reader, if they contain the table's rows unchanged."""
