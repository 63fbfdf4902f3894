"""Creates and alters tables: makes the next version of a schema, and checks the rules that it must satisfy."""
