"""Row-level operations: deletes and updates of single rows (Paimon's row-level commands)."""
