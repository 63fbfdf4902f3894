"""Tables about a table: `orders$audit_log`, `orders$binlog`, `orders$ro`."""
