"""Statistics of a table for query planners: counted from its rows, stored in a file that snapshots name."""
