"""Dead letters read again: the table becomes what it would have been had they never failed."""
