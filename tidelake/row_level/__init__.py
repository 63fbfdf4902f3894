"""Changes of single rows, as `tidelake.Table` offers them."""
