"""What commands print for people: rows, table summaries, the LSM tree."""
