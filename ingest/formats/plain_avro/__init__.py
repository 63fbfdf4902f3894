"""Rows in Avro, without an envelope."""
