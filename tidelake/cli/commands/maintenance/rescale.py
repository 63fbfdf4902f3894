"""`tidelake table rescale`: changes the number of buckets of partitions."""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.cli.arguments import CatalogAddress
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput


def rescale(
    out: CommandOutput, *, name: str, catalog: CatalogAddress, bucket: int, partition: Sequence[tuple[str, str]]
) -> None:
    rewritten = catalog.open().rescale_table(name, bucket, partition=dict(partition) or None)
    if out.is_json:
        out.document({"table": name, "bucket": bucket, "partitions": rewritten})
        return
    for directory in rewritten:
        out.console.print(printable(directory or "the whole table"), soft_wrap=True)
    out.note(f"{name}: {len(rewritten):,} partitions were rewritten into {bucket} buckets")
