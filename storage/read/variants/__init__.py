"""What variants hold, for people and programs."""
