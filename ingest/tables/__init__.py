"""The tables of a pipeline: rows in, snapshots out, and old values of rows looked up."""
