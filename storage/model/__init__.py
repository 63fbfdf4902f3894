"""What a table is: its types, schema, options, snapshots, and where its files are."""
