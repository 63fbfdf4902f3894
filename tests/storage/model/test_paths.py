from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import BadInput
from tidelake.storage.model import paths
from tidelake.storage.model.paths import (
    DataFileNames,
    MetadataFileNames,
    TablePaths,
    file_extension,
    format_of,
    partition_path,
)

TABLE = TablePaths("/w/shop.db/orders")
BRANCH = TABLE.for_branch("dev")

# ---------------------------------------------------------------- locations of files


@pytest.mark.parametrize(
    ("of_main", "of_branch", "expected"),
    [
        (TABLE.schema(0), BRANCH.schema(0), "schema/schema-0"),
        (TABLE.snapshot(12), BRANCH.snapshot(12), "snapshot/snapshot-12"),
        (TABLE.latest_hint, BRANCH.latest_hint, "snapshot/LATEST"),
        (TABLE.earliest_hint, BRANCH.earliest_hint, "snapshot/EARLIEST"),
        (TABLE.changelog(3), BRANCH.changelog(3), "changelog/changelog-3"),
        (TABLE.changelog_latest_hint, BRANCH.changelog_latest_hint, "changelog/LATEST"),
        (TABLE.changelog_earliest_hint, BRANCH.changelog_earliest_hint, "changelog/EARLIEST"),
        (TABLE.tag("v1"), BRANCH.tag("v1"), "tag/tag-v1"),
        (TABLE.consumer("c"), BRANCH.consumer("c"), "consumer/consumer-c"),
    ],
    ids=lambda path: path,
)
def test_a_branch_has_its_own_metadata_paths(of_main: str, of_branch: str, expected: str) -> None:
    assert of_main == f"/w/shop.db/orders/{expected}"
    assert of_branch == f"/w/shop.db/orders/branch/branch-dev/{expected}"


@pytest.mark.parametrize(
    ("of_main", "of_branch", "expected"),
    [
        (TABLE.manifest("manifest-x-0"), BRANCH.manifest("manifest-x-0"), "manifest/manifest-x-0"),
        (TABLE.index("index-x-0"), BRANCH.index("index-x-0"), "index/index-x-0"),
        (TABLE.statistics("stat-x-0"), BRANCH.statistics("stat-x-0"), "statistics/stat-x-0"),
        (TABLE.branch_directory, BRANCH.branch_directory, "branch"),
        (TABLE.bucket_directory("", 0), BRANCH.bucket_directory("", 0), "bucket-0"),
        (TABLE.bucket_directory("a=1/b=2", 7), BRANCH.bucket_directory("a=1/b=2", 7), "a=1/b=2/bucket-7"),
        (TABLE.bucket_directory("a=1", -2), BRANCH.bucket_directory("a=1", -2), "a=1/bucket-postpone"),
    ],
    ids=lambda path: path,
)
def test_branches_share_data_paths(of_main: str, of_branch: str, expected: str) -> None:
    assert of_main == of_branch == f"/w/shop.db/orders/{expected}"


@pytest.mark.parametrize("directory", ["data", "data/", "/data/"])
def test_a_data_directory_holds_buckets_but_no_metadata(directory: str) -> None:
    table = TablePaths("s3://b/t", data_directory=directory)
    assert table.bucket_directory("dt=1", 3) == "s3://b/t/data/dt=1/bucket-3"
    assert table.snapshot(1) == "s3://b/t/snapshot/snapshot-1"
    assert table.manifest("m") == "s3://b/t/manifest/m"


def test_paths_pickle() -> None:
    assert pickle.loads(pickle.dumps(BRANCH)) == BRANCH


# ---------------------------------------------------------------- parsing undoes building


@given(st.integers(0, 2**63 - 1))
def test_numbers_are_parsed_from_names(number: int) -> None:
    assert paths.parse_snapshot_id(last_part(TABLE.snapshot(number))) == number
    assert paths.parse_schema_id(last_part(TABLE.schema(number))) == number
    assert paths.parse_changelog_id(last_part(TABLE.changelog(number))) == number
    assert paths.parse_bucket(last_part(TABLE.bucket_directory("", number))) == number


def test_the_postpone_bucket_is_parsed_from_its_name() -> None:
    assert paths.parse_bucket(last_part(TABLE.bucket_directory("", -2))) == -2


@given(st.text(min_size=1).filter(lambda name: "/" not in name))
def test_words_are_parsed_from_names(word: str) -> None:
    assert paths.parse_tag_name(last_part(TABLE.tag(word))) == word
    assert paths.parse_consumer_name(last_part(TABLE.consumer(word))) == word
    assert paths.parse_branch_name(last_part(TABLE.branch_root(word))) == word


def last_part(path: str) -> str:
    return path.rpartition("/")[2]


@pytest.mark.parametrize(
    "name",
    [
        "LATEST",
        "snapshot-",
        "snapshot-1a",
        "snapshot-007",
        "snapshot--1",
        "snapshot-²",
        ".snapshot-5.x.tmp",
        "snapshot-5.tmp",
    ],
)
def test_other_files_are_not_snapshots(name: str) -> None:
    assert paths.parse_snapshot_id(name) is None


@pytest.mark.parametrize("name", ["tag-", "consumer-c", "tags-v1", ""])
def test_other_files_are_not_tags(name: str) -> None:
    assert paths.parse_tag_name(name) is None


@pytest.mark.parametrize("name", ["main", "", "  ", "42", "a/b"])
def test_bad_branch_names_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="choose another name"):
        paths.check_branch_name(name)


def test_good_branch_names_are_accepted() -> None:
    for name in ("dev", "2024-05", "main2"):
        paths.check_branch_name(name)


# ---------------------------------------------------------------- partitions

NAMES = st.text(min_size=1)


@given(st.dictionaries(NAMES, NAMES.filter(lambda text: text.strip() != ""), max_size=4))
def test_partition_values_are_parsed_from_paths(values: dict[str, str]) -> None:
    path = partition_path(list(values), list(values.values()), "__DEFAULT_PARTITION__")
    assert path.count("/") == max(len(values) - 1, 0)
    assert paths.parse_partition_path(path) == values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(None, "none", id="null"),
        pytest.param("", "none", id="empty"),
        pytest.param(" \t\u2003\u3000\x1f", "none", id="blanks"),
        pytest.param("\u00a0", "\u00a0", id="a no-break space is no whitespace to Java"),
        pytest.param("\u0085", "\u0085", id="nor is a next-line character"),
        pytest.param("none", "none", id="the name itself: why a value can't be read from its path"),
    ],
)
def test_nulls_and_blanks_use_the_default_name(text: str | None, expected: str) -> None:
    assert partition_path(["k"], [text], "none") == f"k={expected}"


def test_names_and_the_default_name_are_escaped_too() -> None:
    assert partition_path(["a=b", "c"], [None, "/"], "x:y") == "a%3Db=x%3Ay/c=%2F"


@pytest.mark.parametrize("path", ["dt", "=1", "dt=1/", "/dt=1", "a=1//b=2"])
def test_an_invalid_partition_path_is_refused(path: str) -> None:
    with pytest.raises(BadInput, match="not a partition path"):
        paths.parse_partition_path(path)


def test_a_percent_sign_without_two_hex_digits_is_kept() -> None:
    assert paths.parse_partition_path("k=50%/l=%zz%4") == {"k": "50%", "l": "%zz%4"}


# ---------------------------------------------------------------- file names


@pytest.mark.parametrize(
    ("file_format", "compression", "include", "expected"),
    [
        ("parquet", "zstd", False, ".parquet"),
        ("parquet", "zstd", True, ".zst.parquet"),
        ("parquet", "ZSTD", True, ".zst.parquet"),
        ("parquet", "none", True, ".parquet"),
        ("parquet", "", True, ".parquet"),
        ("orc", "lz4", True, ".lz4.orc"),
        ("avro", "gzip", True, ".gz.avro"),
        ("avro", "bzip2", True, ".bz2.avro"),
        ("parquet", "brotli", True, ".brotli.parquet"),
        ("json", "gzip", False, ".json.gz"),
        ("csv", "none", False, ".csv"),
    ],
)
def test_extensions_contain_format_and_codec(file_format: str, compression: str, include: bool, expected: str) -> None:
    assert file_extension(file_format, compression, include) == expected
    assert format_of(DataFileNames("data-").next(expected)) == file_format


@pytest.mark.parametrize("name", ["data-x-0", "data-x-0.gz", ""])
def test_a_file_without_extension_has_no_format(name: str) -> None:
    with pytest.raises(BadInput, match="no extension that names its format"):
        format_of(name)


def test_data_files_are_numbered_under_one_uuid_a_writer() -> None:
    one, other = DataFileNames("data-"), DataFileNames("changelog-")
    names = [one.next(".parquet"), one.next(".orc"), other.next(".parquet")]
    uuid = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    assert re.fullmatch(f"data-({uuid})-0\\.parquet data-\\1-1\\.orc changelog-{uuid}-0\\.parquet", " ".join(names))
    assert names[0][5:41] != names[2][10:46]
    assert paths.file_index_name("data-x-0.parquet") == "data-x-0.parquet.index"


def test_metadata_file_names_are_unique() -> None:
    names = MetadataFileNames()
    made = [names.manifest(), names.manifest_list(), names.manifest(), MetadataFileNames().manifest()]
    assert len(set(made)) == len(made)
    prefixes = [re.sub("[0-9a-f]{8}-[0-9a-f-]+$", "", name) for name in made]
    assert prefixes == ["manifest-", "manifest-list-", "manifest-", "manifest-"]
