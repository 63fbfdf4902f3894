"""Format tables: folders of files in formats that many engines can read, with Hive's partition directories."""
