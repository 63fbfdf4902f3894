"""Tables that are not of snapshots, or not only: what `catalog.table` gives for them."""
