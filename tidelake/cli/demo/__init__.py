"""`tidelake demo`: changes of a small shop become tables while you watch, and are compared with the shop at the end."""
