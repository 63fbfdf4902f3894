"""Committed states of a table: snapshots, the manifests they are made of, and how a new one comes to be."""
