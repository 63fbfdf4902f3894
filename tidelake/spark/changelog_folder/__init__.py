"""A folder of change logs as a source of Spark's: the files and the order of `ingest.sources.change_log_folder`."""
