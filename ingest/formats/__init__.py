"""Decoders of change records into Arrow batches of table rows, one for each value of `format`."""
