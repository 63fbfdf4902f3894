"""One module a noun of the command line: what `tidelake NOUN VERB` does."""
