"""Changes of single rows: deleted, or replaced by others (Paimon's row-level commands)."""
