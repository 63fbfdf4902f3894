"""`python -m tidelake.compaction WAREHOUSE NAME`: compacts one table, for schedulers and scripts.

Prints a report as JSON, one line for each table and round. `tidelake table compact` is the command for people, and has
more options.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from tidelake.compaction.append.clustering import ClusteringStrategy
from tidelake.compaction.cancellation import cancelled_by_signals
from tidelake.compaction.jobs.request import CompactionRequest
from tidelake.compaction.jobs.watch import watch
from tidelake.compaction.report import CompactionReport
from tidelake.compaction.table_compaction import compact
from tidelake.errors import TidelakeError
from tidelake.storage.catalog.opening import open_catalog


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Exit codes: 0 done, 1 failed, 2 usage, 130 cancelled before the end; a cancelled watch exits with 0.
    """
    parser = argparse.ArgumentParser("python -m tidelake.compaction", description=__doc__, allow_abbrev=False)
    parser.add_argument("warehouse", metavar="WAREHOUSE", help="path or URI")
    parser.add_argument("name", metavar="NAME", help="database.table")
    parser.add_argument("--full", action="store_true", help="compact each bucket into one sorted run")
    parser.add_argument("--watch", action="store_true", help="keep running until SIGTERM")
    parser.add_argument(
        "--order-by", metavar="COLUMNS", help="sort the rows of an append table by these, separated by commas"
    )
    parser.add_argument("--strategy", type=ClusteringStrategy, choices=tuple(ClusteringStrategy))
    parser.add_argument(
        "--option", action="append", default=[], type=_pair, metavar="KEY=VALUE", help="option of the store, repeatable"
    )
    given = parser.parse_args(arguments)
    if given.watch and (given.full or given.order_by):
        parser.error(
            "--watch compacts only what is due, and continues; --full and --order-by rewrite everything once. Pass "
            "only one of them"
        )
    if given.strategy is not None and not given.order_by:
        parser.error("--strategy says how to sort; name the columns with --order-by")
    try:
        catalog = open_catalog(given.warehouse, dict(given.option))
        order_by = tuple(column.strip() for column in given.order_by.split(",")) if given.order_by else ()
        request = CompactionRequest(full=given.full, order_by=order_by, strategy=given.strategy)
        with cancelled_by_signals() as cancellation:
            if given.watch:
                watch(lambda: [given.name], catalog.load, request, cancellation, _print_report)
                return 0
            report = compact(catalog.load(given.name), request, cancellation=cancellation)
        _print_report(report)
    except (TidelakeError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 130 if report.is_cancelled else 0


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise argparse.ArgumentTypeError(f"write KEY=VALUE, not {text!r}")
    return key, value


def _print_report(report: CompactionReport) -> None:
    sys.stdout.write(json.dumps(report.to_members(), ensure_ascii=False) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
