"""System tables, which describe a table or show it differently: `orders$audit_log`, `orders$binlog`, `orders$ro`."""
