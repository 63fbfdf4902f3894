"""Iceberg metadata of a table, published after each of its snapshots: what Iceberg readers see."""
