"""The commands `tidelake NOUN VERB`, with one module per noun."""
