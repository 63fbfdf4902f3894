"""Names of columns in lower case, for catalogs that take no others."""
