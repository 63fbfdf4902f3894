"""Moved rows: rows whose key changed, and their values, which are kept until they arrive under the new key."""
