"""Follows a table: where a stream of changes starts, and which snapshot it reads next."""
