"""Column names in lower case, for catalogs that allow no upper case."""
