"""The order of a batch's rows at their source, found again in a task."""
