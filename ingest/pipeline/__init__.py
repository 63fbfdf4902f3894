"""The pipeline: its start, its flow from a source to committed tables, its checkpoints, and its end."""
