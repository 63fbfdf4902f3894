"""Tables whose rows have their columns in several files (`data-evolution.enabled`), found by row id."""
