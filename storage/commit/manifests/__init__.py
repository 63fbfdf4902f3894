"""Manifests and manifest lists, which describe the files of a snapshot."""
