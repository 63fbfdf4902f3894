"""Reads a table's rows at a snapshot, and its changes between snapshots."""
