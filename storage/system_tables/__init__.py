"""System tables, which describe a table or show it in another form: `orders$audit_log`, `orders$binlog`, `orders$ro`.
"""
