"""What Spark does to tables: changes of rows, and maintenance."""
