"""Tables whose keys move between partitions (`bucket = -1`, and a primary key that leaves out a partition column)."""
