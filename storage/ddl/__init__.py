"""Creating and altering tables: the next version of a schema, and the rules it must keep."""
