"""File indexes: indexes of a data file's columns, with which reads can skip the file, or some of its rows."""
