"""Avro records: framing, schema registry, and readers of whole columns and of single values."""
