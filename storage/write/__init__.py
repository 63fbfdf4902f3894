"""Writes rows to data files: buffers, flushes, commit messages. This package publishes nothing."""
