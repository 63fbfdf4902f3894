"""`format("tidelake-kafka")`: Kafka topics as DataFrames, without a jar.

Columns and options are those of Spark's own connector.
"""
