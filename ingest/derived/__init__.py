"""Columns that no record holds: computed from others, or from where the record came from."""
