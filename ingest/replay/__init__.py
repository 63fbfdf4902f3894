"""Replays dead letters: afterwards the table is as if they had never failed."""
