"""Turns commit messages into the table's next snapshot."""
