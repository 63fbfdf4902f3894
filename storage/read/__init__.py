"""What is in the table, at a snapshot or between snapshots."""
