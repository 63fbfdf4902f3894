"""The quarantine of failed tables: their records are kept in order, while the other tables continue."""
