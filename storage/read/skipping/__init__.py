"""What need not be read: files and rows that no matching row is among, and why."""
