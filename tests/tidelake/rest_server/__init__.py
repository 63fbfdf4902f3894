"""Tests of the server of the REST catalog protocol."""
