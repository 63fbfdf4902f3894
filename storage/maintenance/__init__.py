"""What users and jobs do to a table's history: tags, branches, rollbacks, removal of orphan files."""
