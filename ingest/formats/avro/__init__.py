"""Avro records: framing, schemas of a registry, columns, and single values as Connect's JSON."""
