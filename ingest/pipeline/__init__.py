"""The pipeline: from a source to committed tables, its start, its checkpoints and its end."""
