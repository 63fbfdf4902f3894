"""The row-level operations of `tidelake.Table`."""
