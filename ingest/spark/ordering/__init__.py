"""Restores the order of a batch's rows at their source, in a task."""
