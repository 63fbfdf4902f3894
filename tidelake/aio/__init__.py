"""The same as `tidelake`, with async: no call blocks the event loop.

    catalog = await tidelake.aio.open_catalog("/data/lake")
    table = await catalog.table("shop.orders")
    async for change in table.follow(start="latest"):
        ...

Work runs in threads. A cancelled call is abandoned only if it reads. A call that writes is completed first, however
often it is cancelled: another call may follow on the same writer, at least `close`, and the outcome of a commit, or of
creating or dropping a table, must be known.
"""

from __future__ import annotations

from tidelake.aio.catalog import Catalog, open_catalog
from tidelake.aio.scan import Scan
from tidelake.aio.table import Table
from tidelake.aio.writer import Writer

__all__ = ["Catalog", "Scan", "Table", "Writer", "open_catalog"]
