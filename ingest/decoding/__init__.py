"""Decodes batches of a pipeline in processes of their own."""
