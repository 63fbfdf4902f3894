"""The table: format, files, merge, snapshots, reading. It imports no other package.

All code here is synchronous and may be called from any thread. The event loop is in `ingest` and `tidelake.aio`.
"""
