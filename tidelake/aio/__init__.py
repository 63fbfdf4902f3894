"""The same as `tidelake`, with async: nothing here blocks the event loop.

    catalog = await tidelake.aio.open_catalog("/data/lake")
    table = await catalog.table("shop.orders")
    async for change in table.follow(start="latest"):
        ...

Work runs in threads. A call that is cancelled is abandoned only where it reads. One that writes is waited for, however
often it is cancelled: another may follow on the same writer, its closing at the latest, and of a commit, or of a table
that is made or dropped, the outcome has to be known.
"""

from __future__ import annotations

from tidelake.aio.catalog import Catalog, open_catalog
from tidelake.aio.scan import Scan
from tidelake.aio.table import Table
from tidelake.aio.writer import Writer

__all__ = ["Catalog", "Scan", "Table", "Writer", "open_catalog"]
