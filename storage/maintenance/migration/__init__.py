"""Turns a folder of files into an append table: its files are registered unchanged, none is rewritten."""
