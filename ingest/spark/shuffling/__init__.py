"""Rows of a batch on their way to the tasks that write them."""
