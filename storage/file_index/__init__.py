"""File indexes: what a data file tells of its columns, so that a read can skip the file, or rows of it."""
