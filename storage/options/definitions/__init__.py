"""Every option, by subject. The order of families counts: the first that fits a key is its own."""

from __future__ import annotations
