"""The format `maxwell-json`: records of Maxwell's Daemon."""
