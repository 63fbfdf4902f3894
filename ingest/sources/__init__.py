"""Where change records come from."""
