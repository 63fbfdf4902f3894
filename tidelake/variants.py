"""Values of VARIANT columns, made from JSON and read as JSON or as typed columns."""

from __future__ import annotations

from tidelake.homes import give_home
from tidelake.storage.read.variants.columns import variant_from_json, variant_get, variant_to_json

__all__ = [
    "variant_from_json",
    "variant_get",
    "variant_to_json",
]

give_home(__name__, __all__, globals())
