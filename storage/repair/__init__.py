"""What is lost, and what a table can do without it."""
