"""Which databases and tables there are, and where they are."""

from __future__ import annotations
