"""Reads the changes of each snapshot, keeps a reader's position, and divides a table among several readers."""
