"""Column types derived from the types that sources declare."""
