"""Mutation tests of modules that decide: which files are compacted, what a conflict is, where a pipeline resumes."""
