"""What formats have in common whose records are an envelope of JSON: an operation, row images, a table's name."""
