"""Schema evolution: which changes of the source are applied to a table, and in which order with the rows."""
