"""Blob files: the values of one BLOB column, each as it is, so that one can be read without the others."""
