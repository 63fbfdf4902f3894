"""`tidelake doctor`: checks the machine, the source and the tables of a configuration before a run."""
