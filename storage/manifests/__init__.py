"""Manifests and manifest lists: which files a snapshot is made of."""
