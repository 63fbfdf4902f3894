"""A folder of change logs as a data source of Spark.

Files and their order are those of `tidelake.ingest.sources.change_log_folder`.
"""
