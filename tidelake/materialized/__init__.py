"""Refreshes materialized tables: their query runs again on all rows or only on changed ones, and updates the table."""
