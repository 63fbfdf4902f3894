"""A table's schema follows its source's: what may change, what is changed, and in which order with the rows."""
