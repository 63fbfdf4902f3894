"""The metadata of Apache Iceberg that describes a table's files to Iceberg readers: its schemas, values and JSON."""
