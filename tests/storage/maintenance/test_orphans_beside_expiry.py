"""An orphan cleaner beside an expiry that moves the hint while the cleaner reads: that is no damage."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.support.faulty_file_io import Call, Fault, FaultyFileIO
from tidelake.catalog import Catalog
from tidelake.errors import CorruptFile
from tidelake.storage.catalog.filesystem import FileSystemCatalog
from tidelake.storage.fileio.memory import MemoryFileIO

COLUMNS = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.mark.parametrize("is_expiring", [True, False])
def test_metadata_that_an_expiry_deletes_meanwhile_is_no_damage(is_expiring: bool) -> None:
    io = FaultyFileIO(MemoryFileIO())
    warehouse = f"memory://orphans-beside-expiry-{is_expiring}/lake"
    catalog = Catalog(FileSystemCatalog(io, warehouse))
    catalog.create_database("d")
    table = catalog.create_table("d.t", COLUMNS, primary_key=["k"], options={"bucket": "1"})
    for number in range(3):
        table.upsert([{"k": number, "v": "x"}], commit_user="one", identifier=number)
    first, kept = table.snapshots()[0], [row["k"] for row in table.scan().to_arrow().to_pylist()]
    context = table.context

    def expire_first(call: Call) -> Fault | None:
        if call.file_name == first.delta_manifest_list:
            io.fault = lambda _: None
            if is_expiring:
                io.inner.write(context.paths.earliest_hint, b"2")
            io.inner.delete(context.paths.manifest(first.delta_manifest_list))
        return None

    io.fault = expire_first
    if is_expiring:
        assert not table.clean_orphans().paths
        assert [row["k"] for row in table.scan().to_arrow().to_pylist()] == kept
    else:
        with pytest.raises(CorruptFile, match="expected metadata of all snapshots"):
            table.clean_orphans()
