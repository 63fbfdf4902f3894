"""Avro's binary form: types, and a reader that makes columns of many records at once."""
