"""What is done to a table beside reading and writing it: tags, branches, rollback, orphans, analysis, checks,
migration, repair."""
