"""Shaped columns: which columns of the records a table gets, under which names, masked or not, and which rows."""
