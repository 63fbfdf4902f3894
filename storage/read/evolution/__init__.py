"""Reads tables with `data-evolution.enabled`: the columns of a row are in several files, joined by row id."""
