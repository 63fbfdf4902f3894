"""Fewer runs, and what changed."""
