"""When offsets and files become one fact: source positions, committables, the checkpoint coordinator."""
