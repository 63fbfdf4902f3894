"""What changed from snapshot to snapshot, how far a reader of it is, and what it shares with others."""
