"""How commit messages become the table's next snapshot."""
