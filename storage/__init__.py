"""Tables: format, files, merge, snapshots, reading. This package imports no other package of the project.

Everything here is synchronous and may be called from any thread. Event loops are in `ingest` and `tidelake.aio`.
"""
