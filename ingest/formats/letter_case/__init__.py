"""Names of columns in small letters, for catalogs that take no others."""
