"""The format `debezium-avro`: Debezium's records in Avro, with the rules of `tidelake.ingest.formats.debezium`."""
