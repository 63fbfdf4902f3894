"""Committed states of a table: snapshots, changelogs, tags, branches and consumers."""
