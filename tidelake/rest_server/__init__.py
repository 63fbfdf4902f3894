"""A server of Paimon's REST catalog protocol for one warehouse (`tidelake serve rest`)."""

from __future__ import annotations
