"""Which databases and tables there are, and where they lie."""

from __future__ import annotations
