"""The shared decoder of formats whose records are JSON envelopes: an operation, row images, a table's name."""
