"""A pipeline's configuration: YAML, environment and flags, read and checked."""
