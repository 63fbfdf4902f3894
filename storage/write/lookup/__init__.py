"""Looks up the newest visible row of each key of a batch."""
