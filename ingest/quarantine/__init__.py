"""Tables that failed: their records are kept in order, aside, while the other tables go on."""
