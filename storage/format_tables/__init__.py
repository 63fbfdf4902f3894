"""Format tables: folders of files in a format that any engine reads, in Hive's partition directories."""
