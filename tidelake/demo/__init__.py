"""`tidelake demo`: a small shop's changes become tables while you watch, and are compared with the shop at the end."""
