"""From the bytes of change records to Arrow batches of a table's rows: one decoder per `format`."""
