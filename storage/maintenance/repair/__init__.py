"""Repairs of tables that lost files: data files, manifests, snapshots."""
