"""Removes snapshots and changelogs, with the files that nothing else references."""
