"""Data files: their metadata and contents, and how they are written and read."""
