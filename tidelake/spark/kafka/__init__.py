"""`format("tidelake-kafka")`: Kafka topics as DataFrames, without a jar; columns and options are those of Spark's own
connector.
"""
