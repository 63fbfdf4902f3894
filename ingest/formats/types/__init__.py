"""Column types that sources name, and those that values show."""
