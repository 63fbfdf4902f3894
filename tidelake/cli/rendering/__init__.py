"""The output of commands for people: rows, table summaries, the LSM tree."""
