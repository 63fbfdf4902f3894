"""Blob files: the values of one BLOB column, stored unchanged, so that a value can be read without the others."""
