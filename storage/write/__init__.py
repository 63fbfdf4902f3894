"""From rows to data files: buffers, flushes, commit messages. Nothing here publishes anything."""
