"""Aggregate functions: reduce the values of one column to one value for each group of rows with equal keys."""
