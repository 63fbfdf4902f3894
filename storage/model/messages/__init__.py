"""Parts of messages that several packages share: suggestions for unknown names, commands that alter a table."""
