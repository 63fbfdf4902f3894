"""Checkpoints: source positions, committables, the coordinator, recovery."""
