"""Reading the files of a table by Spark's own Parquet reader, where they hold its rows as they are."""
