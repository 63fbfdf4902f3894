"""Debezium's records in Avro: the rules of `ingest.formats.debezium`, on columns that come typed."""
