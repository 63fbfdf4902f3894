"""Tests of tables in the hands of other libraries."""
