from __future__ import annotations

from tests.support.s3_server import s3_server

__all__ = ["s3_server"]
