"""The format `avro`: records that are rows in Avro, without an envelope."""
