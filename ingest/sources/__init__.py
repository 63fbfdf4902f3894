"""The sources of change records."""
