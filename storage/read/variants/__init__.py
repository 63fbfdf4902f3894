"""Reads the content of VARIANT values."""
