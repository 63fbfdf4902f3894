"""A folder of files becomes an append table: its files are registered as they are, none is rewritten."""
