"""The format `debezium-avro`: Debezium's records in Avro, with the rules of `ingest.formats.debezium`."""
