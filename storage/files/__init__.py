"""Data files: their metadata, what is in them, how they are written and read."""
