"""The newest visible row for a batch of keys."""
