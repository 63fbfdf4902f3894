"""Fewer runs, and what changed. (The engine itself arrives with the LSM issue.)"""
