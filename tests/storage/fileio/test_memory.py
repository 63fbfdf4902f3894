"""Files in memory belong to one process."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from tidelake.errors import BadInput
from tidelake.storage.fileio import open_file_io


def test_equal_names_share_one_memory_store() -> None:
    open_file_io("memory://here/a").write("memory://here/a", b"1")
    assert open_file_io("memory://here").read("memory://here/a") == b"1"
    assert not open_file_io("memory://there").exists("memory://there/a")


def test_another_process_is_refused() -> None:
    script = "import pickle, sys; pickle.load(sys.stdin.buffer)"
    pickled = pickle.dumps(open_file_io("memory://here"))
    run = subprocess.run([sys.executable, "-c", script], input=pickled, capture_output=True, check=False)
    assert b"UnsupportedFeature: memory://: its files exist only in the process that created them" in run.stderr


def test_a_forked_child_is_refused_instead_of_hanging() -> None:
    """Holds for every object store; with a real one the child would hang."""
    script = """
import os
from tidelake.errors import UnsupportedFeature
from tidelake.storage.fileio import open_file_io

io = open_file_io("memory://here")
io.write("memory://here/f", b"1")
child = os.fork()
if not child:
    try:
        io.read("memory://here/f")
    except UnsupportedFeature as error:
        os._exit(42 if "spawn" in error.remedy else 1)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
assert io.read("memory://here/f") == b"1"
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_path_of_another_store_is_refused() -> None:
    with pytest.raises(BadInput, match="s3://bucket"):
        open_file_io("memory://here").write("s3://bucket/f", b"1")
