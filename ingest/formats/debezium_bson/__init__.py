"""Debezium's MongoDB connector: documents as extended JSON."""
