"""What people and jobs do to a table's history: tags, branches, rollbacks, files that nothing names."""
