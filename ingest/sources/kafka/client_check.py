"""The error for a release of aiokafka that the Kafka source does not support."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from tidelake.errors import UnsupportedFeature

AIOKAFKA: Final = version("aiokafka")  # read here, as it blocks
_RELIABLE: Final = "0.14.*"  # the release that the tests use


def unsupported_client(found: str) -> UnsupportedFeature:
    """Return the error to raise.

    found: the unsupported difference.
    """
    return UnsupportedFeature(
        f"aiokafka {AIOKAFKA}",
        f"{found}. The Kafka source needs this to detect topics that were deleted or created again, so it does not "
        "start",
        f'Install a release that works: pip install "aiokafka=={_RELIABLE}"',
    )
