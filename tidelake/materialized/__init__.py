"""Materialized tables: their query is run again, or only over what changed, and its rows become the table's."""
