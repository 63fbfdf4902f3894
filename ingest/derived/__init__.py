"""Derived columns: computed from other columns, or from the origin of the record."""
