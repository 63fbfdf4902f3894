"""`tidelake doctor --chaos`: the user's own pipeline, disturbed on a scratch warehouse, gives what an undisturbed one
gives.
"""
