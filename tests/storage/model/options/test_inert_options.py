"""Each test of `option_tests.py` fails if its option has no effect."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.storage.model.options.option_tests import OPTION_TESTS
from tests.support.inert_options import NOTICES, inert
from tests.support.levels import is_of_the_day
from tidelake.storage.model.options import TableOptions
from tidelake.storage.model.options.catalog_values import CatalogValues

ROOT: Final = Path(__file__).parents[4]
MODULES: Final = sorted({test.partition("::")[0] for test in OPTION_TESTS.values()})
DAYS: Final = 50
OF_THE_DAY: Final = [option for number, option in enumerate(OPTION_TESTS) if is_of_the_day(number, DAYS)]


def check_noticed(options: Sequence[str], tmp_path: Path) -> None:
    tests = sorted({OPTION_TESTS[option] for option in options})
    command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-m", "", "-p", "no:cacheprovider"]
    plugin = ["-p", "tests.support.inert_options", f"--inert={','.join(options)}", f"--basetemp={tmp_path}/run"]
    run = subprocess.run([*command, *plugin, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    lines = [line.split("\t") for line in run.stdout.splitlines() if "\t" in line]
    verdicts = {option: verdict for verdict, option, *_ in lines}
    assert verdicts == dict.fromkeys(options, NOTICES), run.stdout + run.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("module", MODULES)
def test_each_named_test_notices_that_its_option_has_no_effect(module: str, tmp_path: Path) -> None:
    check_noticed([option for option, test in OPTION_TESTS.items() if test.startswith(f"{module}::")], tmp_path)


@pytest.mark.interop
@pytest.mark.timeout(900)
def test_the_tests_of_the_options_of_the_day_notice(tmp_path: Path) -> None:
    check_noticed(OF_THE_DAY, tmp_path)


def test_an_inert_option_has_its_default_under_each_of_its_names() -> None:
    texts = {"lookup-wait": "false", "write-only": "true"}
    old = {"changelog-producer.lookup-wait": "false"}
    known = TableOptions(texts)
    assert not known.lookup_wait
    with inert("lookup-wait"):
        assert known.lookup_wait
        assert TableOptions(old).lookup_wait
        assert dict(TableOptions(texts)) == {"write-only": "true"}
        assert "lookup-wait" not in known.overridden({"write-only": "false"})
        assert known.write_only
    assert not known.lookup_wait
    assert not TableOptions(old).lookup_wait


def test_all_options_of_an_inert_family_are_hidden() -> None:
    options = TableOptions({"fields.a.aggregate-function": "sum", "fields.default-aggregate-function": "max"})
    with inert("fields.<column>.aggregate-function"):
        assert dict(options) == {"fields.default-aggregate-function": "max"}


def test_an_inert_option_of_a_catalog_leaves_that_of_a_table() -> None:
    with inert("metastore"):
        assert CatalogValues({"metastore": "jdbc"}).metastore == "filesystem"
    with inert("bucket"):
        assert CatalogValues({"uri": "x"}).text("uri") == "x"
