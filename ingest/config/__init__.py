"""Reads and checks a pipeline's configuration: YAML, environment and flags."""
