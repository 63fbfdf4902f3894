"""Columns that no record holds: computed from others, or told by where the record came from."""
