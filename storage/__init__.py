"""The table: format, files, merge, snapshots, reading. It imports no other package.

Everything here is synchronous and may be called from any thread; the event loop lives in `ingest` and `tidelake.aio`.
"""
