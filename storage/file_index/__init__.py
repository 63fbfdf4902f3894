"""File indexes: what is known of a data file's columns before it is opened, so that reads skip it, or rows of it."""
