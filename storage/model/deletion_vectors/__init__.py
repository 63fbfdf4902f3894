"""Deletion vectors: positions of deleted rows in data files, applied when the files are read."""
