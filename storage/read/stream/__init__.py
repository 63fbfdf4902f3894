"""Where a reader of changes begins, how far it is, and what it shares with others."""
