"""Statistics of a table for planners: counted from its rows, kept in a file that snapshots name."""
