"""Debezium JSON: envelope, record schema, row changes."""
