"""Proposes a configuration from the topics of a cluster. For `tidelake init`."""
