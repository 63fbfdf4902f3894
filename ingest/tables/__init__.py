"""The tables of a pipeline: they write rows, commit snapshots, and look up old values of rows."""
