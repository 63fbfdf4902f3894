"""Builds the parts of a pipeline from its configuration."""
