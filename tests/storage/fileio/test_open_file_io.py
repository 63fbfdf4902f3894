"""The FileIO of a location, and the client configuration from Paimon's options."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.location import AZURE_SCHEMES, REMOTE_SCHEMES
from tidelake.storage.fileio.stores import open_store, store_options


@pytest.mark.parametrize(
    ("location", "kind"),
    [
        ("/data/warehouse", "LocalFileIO"),
        ("data/warehouse", "LocalFileIO"),
        ("data/odd://name", "LocalFileIO"),
        ("", "LocalFileIO"),
        ("file:///data", "LocalFileIO"),
        ("file:/data", "LocalFileIO"),
        ("memory://test", "MemoryFileIO"),
        ("s3://bucket/warehouse", "ObjectStoreFileIO"),
        ("S3A://bucket", "ObjectStoreFileIO"),
        ("gs://bucket", "ObjectStoreFileIO"),
        ("gcs://bucket", "ObjectStoreFileIO"),
        ("abfss://container@account.dfs.core.windows.net/warehouse", "ObjectStoreFileIO"),
        ("hdfs://namenode:8020/warehouse", "HdfsFileIO"),
        ("viewfs://cluster/warehouse", "HdfsFileIO"),
    ],
)
def test_the_scheme_selects_the_file_io(location: str, kind: str) -> None:
    assert type(open_file_io(location)).__name__ == kind


def test_ingesting_local_tables_loads_no_client_of_stores_metastores_or_kafka() -> None:
    settings = {
        "pipeline": "shop",
        "warehouse": "/lake",
        "source": {"type": "change-log-folder", "path": "/changes"},
        "tables": [{"name": "shop.orders", "match": "orders", "options": {"bucket": "4"}}],
    }
    clients = {"hdfs_native", "obstore", "xml", "pymetastore", "sqlalchemy", "aiokafka", "pyspark"}
    program = (
        "import sys, tidelake.cli.commands.ingest_run\n"
        "import tidelake.cli.rendering.disk_full, tidelake.ingest.pipeline.builder\n"
        "from tidelake.ingest.config.config import parse_config\n"
        f"parse_config({json.dumps(settings)!r}, 'settings')\n"
        f"print(sorted({clients!r} & {{module.split('.')[0] for module in sys.modules}}))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert loaded.stdout.strip() == "[]"


@pytest.mark.parametrize("scheme", REMOTE_SCHEMES)
def test_each_scheme_of_a_store_has_a_client(scheme: str) -> None:
    authority = "container@account.dfs.core.windows.net" if scheme in AZURE_SCHEMES else "bucket"
    assert open_store(scheme, authority, ()) is not None


@pytest.mark.parametrize("location", ["ftp://host/warehouse", "https://host/f"])
def test_an_unknown_scheme_is_refused_with_the_known_ones(location: str) -> None:
    with pytest.raises(BadInput, match=r"use a path or file://, s3://, .*, memory://"):
        open_file_io(location)


@pytest.mark.parametrize("scheme", ["oss", "cos", "cosn", "obs", "OSS"])
def test_a_store_with_another_protocol_is_refused_with_its_address_in_s3(scheme: str) -> None:
    with pytest.raises(UnsupportedFeature, match=rf"{scheme.lower()}:// .*s3\.endpoint = https://{scheme[:2].lower()}"):
        open_file_io(f"{scheme}://bucket/warehouse")


@pytest.mark.parametrize("options", [{"s3.endpoint": "https://oss-cn.aliyuncs.com", "s3.path.style.access": "false"}])
def test_the_remedy_for_such_a_store_puts_the_bucket_into_the_host_name(options: dict[str, str]) -> None:
    assert config("s3", "lake", options)["endpoint"] == "https://lake.oss-cn.aliyuncs.com"


@pytest.mark.parametrize(
    "endpoint",
    ["not a url", "http://", "host:abc", "http://host:99999", "http://a b", "ftp://x", "http://[::1", "", "http://h?x"],
)
def test_an_endpoint_that_is_no_address_is_refused_by_name(endpoint: str) -> None:
    """obstore would take it, and panic at the first request."""
    with pytest.raises(BadInput, match=r"option s3\.endpoint is .*, which is not an address\. Write http://HOST:PORT"):
        config("s3", "b", {**KEYS, "s3.endpoint": endpoint})


@pytest.mark.parametrize(
    "endpoint", ["localhost:9000", "http://127.0.0.1:1/path", "http://[::1]:9000", "http://my_minio"]
)
def test_an_endpoint_may_be_any_address(endpoint: str) -> None:
    assert endpoint in config("s3", "b", {**KEYS, "s3.endpoint": endpoint})["endpoint"]


def test_an_endpoint_in_the_environment_is_checked_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://a b")
    with pytest.raises(BadInput, match="environment variable AWS_ENDPOINT_URL is 'http://a b'"):
        config("s3", "bucket-of-this-test", KEYS)


@pytest.mark.parametrize("option", ["s3.access-key", "s3.session.token", "s3.region"])
def test_values_invalid_in_headers_are_refused_without_being_shown(option: str) -> None:
    with pytest.raises(BadInput, match=f"option {option} contains a line break") as caught:
        config("s3", "b", {**KEYS, option: "hush\n"})
    assert "hush" not in str(caught.value)


def config(scheme: str, authority: str, options: Mapping[str, str]) -> dict[str, Any]:
    store: Any = open_store(scheme, authority, store_options(options))
    return dict(store.config)


KEYS = {"s3.access-key": "AK", "s3.secret-key": "SK"}
KEYS_READ = {"access_key_id": "AK", "secret_access_key": "SK"}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(KEYS, KEYS_READ, id="Paimon's names"),
        pytest.param({"s3.access.key": "AK", "s3.secret.key": "SK"}, KEYS_READ, id="with dots"),
        pytest.param({"fs.s3a.access.key": "AK", "s3a.secret-key": "SK"}, KEYS_READ, id="Hadoop's names"),
        pytest.param({"fs.s3.accessKeyId": "AK", "fs.s3.accessKeySecret": "SK"}, KEYS_READ, id="pypaimon's names"),
        pytest.param({**KEYS, "s3.session.token": "T"}, {**KEYS_READ, "session_token": "T"}, id="session token"),
        pytest.param({"s3.region": "eu-west-1"}, {"region": "eu-west-1"}, id="region"),
        pytest.param({"s3.endpoint.region": "eu-west-1"}, {"region": "eu-west-1"}, id="Hadoop's region"),
        pytest.param({"s3.endpoint": "http://m:9000"}, {"endpoint": "http://m:9000"}, id="endpoint"),
        pytest.param({"s3.endpoint": "m:9000"}, {"endpoint": "https://m:9000"}, id="endpoint without a scheme"),
        pytest.param(
            {"s3.endpoint": "m:9000", "s3.connection.ssl.enabled": "false"},
            {"endpoint": "http://m:9000"},
            id="endpoint without TLS",
        ),
        pytest.param(
            {"s3.endpoint": "https://oss.com", "s3.path.style.access": "false"},
            {"endpoint": "https://bucket.oss.com", "virtual_hosted_style_request": "true"},
            id="bucket in the host name",
        ),
        pytest.param({"s3.path-style-access": "TRUE"}, {}, id="bucket in the path"),
        pytest.param(
            {"s3.aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
            {"skip_signature": "true"},
            id="nobody",
        ),
        pytest.param({"gs.auth.type": "X", "bucket": "4", "azure.account.key": "x"}, {}, id="others' options"),
    ],
)
def test_s3_options(options: Mapping[str, str], expected: Mapping[str, str]) -> None:
    assert config("s3", "bucket", options) == {"bucket": "bucket", **expected}


def test_plain_http_is_allowed_to_a_configured_endpoint() -> None:
    for endpoint, allowed in (("http://m:9000", True), ("https://m:9000", False)):
        store: Any = open_store("s3", "bucket", (("s3.endpoint", endpoint),))
        assert store.client_options["allow_http"] in (allowed, str(allowed).lower())


@pytest.mark.parametrize("prefix", ["azure.", "fs.azure.", "fs.wasb."])
@pytest.mark.parametrize("name", ["account.key", "account.key.acc.dfs.core.windows.net"])
def test_azure_options(prefix: str, name: str) -> None:
    expected = {"container_name": "box", "account_name": "acc", "account_key": "a2V5"}
    assert config("abfss", "box@acc.dfs.core.windows.net", {prefix + name: "a2V5"}) == expected


def test_an_azure_container_alone_takes_its_account_from_the_options() -> None:
    assert config("az", "box", {"azure.account.name": "acc", "azure.account.key": "a2V5"}) == {
        "container_name": "box",
        "account_name": "acc",
        "account_key": "a2V5",
    }


def test_an_azure_host_of_another_cloud_is_refused_with_the_remedy() -> None:
    with pytest.raises(BadInput, match="AZURE_STORAGE_ENDPOINT"):
        config("abfss", "box@acc.dfs.core.chinacloudapi.cn", {})


def test_gs_options() -> None:
    with pytest.raises(BadInput, match=r"gs://bucket.*/no/such/key\.json"):
        config("gs", "bucket", {"fs.gs.auth.service.account.json.keyfile": "/no/such/key.json"})


def test_an_invalid_boolean_is_refused() -> None:
    with pytest.raises(BadInput, match=r"s3a\.path\.style\.access is 'yes'"):
        config("s3", "bucket", {"s3a.path.style.access": "yes"})


def test_half_a_pair_of_keys_is_refused() -> None:
    with pytest.raises(BadInput, match="s3://bucket"):
        config("s3", "bucket", {"s3.secret-key": "hush"})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"s3.encryption.algorithm": "SSE-S3"}, {"server_side_encryption": "AES256"}),
        ({"s3.server-side-encryption-algorithm": "AES256"}, {"server_side_encryption": "AES256"}),
        (
            {"s3.encryption.algorithm": "SSE-KMS", "s3.encryption.key": "arn:aws:kms:x:1:key/a"},
            {"server_side_encryption": "aws:kms", "sse_kms_key_id": "arn:aws:kms:x:1:key/a"},
        ),
        ({"s3.requester.pays.enabled": "true"}, {"request_payer": "true"}),
        ({"s3.requester.pays.enabled": "false"}, {}),
    ],
)
def test_options_about_what_the_store_does(options: dict[str, str], expected: dict[str, str]) -> None:
    assert config("s3", "bucket", options) == {"bucket": "bucket", **expected}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"s3.encryption.algorithm": "CSE-KMS"}, r"s3\.encryption\.algorithm = CSE-KMS"),
        ({"s3.encryption.algorithm": "SSE-C"}, r"needs s3\.encryption\.key"),
        ({"s3.encryption.key": "k"}, r"set s3\.encryption\.algorithm"),
        ({"s3.encryption.algorithm": "SSE-S3", "s3.encryption.key": "k"}, "leave s3.encryption.key out"),
        ({"s3.encryption.context": "a=b"}, r"s3\.encryption\.context"),
        ({"fs.s3a.aws.credentials.provider": "com.example.Mine"}, "Mine in option fs.s3a.aws.credentials.provider"),
        ({"fs.s3a.security.credential.provider.path": "jceks://x"}, r"fs\.s3a\.security\.credential"),
        ({"s3.proxy.port": "3128"}, r"set s3\.proxy\.host"),
        ({"s3.proxy.host": "a b"}, r"option s3\.proxy\.host"),
        ({"s3.proxy.domain": "x"}, r"s3\.proxy\.domain"),
        ({"s3.ca.bundle": "/no/such.pem"}, r"s3\.ca\.bundle = /no/such\.pem: No such file"),
        ({"s3.assumed.role.policy": "{}"}, r"s3\.assumed\.role\.policy"),
    ],
)
def test_an_option_about_access_acts_or_is_refused_by_name(options: dict[str, str], message: str) -> None:
    with pytest.raises((BadInput, UnsupportedFeature), match=message):
        config("s3", "bucket", options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"gs.auth.impersonation.service.account": "x"}, r"gs\.auth\.impersonation"),
        ({"gs.encryption.key": "x"}, r"gs\.encryption\.key"),
    ],
)
def test_the_same_for_gs(options: dict[str, str], message: str) -> None:
    with pytest.raises((BadInput, UnsupportedFeature), match=message):
        config("gs", "bucket", options)


def test_azure_logins_have_hadoop_s_names() -> None:
    options = {
        "fs.azure.account.auth.type.acc.dfs.core.windows.net": "OAuth",
        "fs.azure.account.oauth2.client.id.acc.dfs.core.windows.net": "id",
        "fs.azure.account.oauth2.client.secret": "hush",
        "fs.azure.account.oauth2.msi.tenant": "tenant",
    }
    found = config("abfss", "box@acc.dfs.core.windows.net", options)
    assert found == {
        "container_name": "box",
        "account_name": "acc",
        "client_id": "id",
        "client_secret": "hush",
        "tenant_id": "tenant",
    }


def test_options_without_effect_are_logged_once_without_their_values(caplog: pytest.LogCaptureFixture) -> None:
    options = {"s3.connection.maximum": "97", "fs.s3a.threads.max": "98"}
    config("s3", "told-once", options)
    config("s3", "told-once", options)
    [message] = caplog.messages
    assert "['fs.s3a.threads.max', 's3.connection.maximum']" in message
    assert "97" not in message


def test_only_store_options_are_pickled() -> None:
    options = {"s3.secret-key": "hush", "jdbc.password": "hidden", "warehouse": "s3://b"}
    io = open_file_io("s3://b", options)
    assert b"hidden" not in pickle.dumps(io)
    assert repr(io) == "ObjectStoreFileIO(s3.secret-key=...)"


def test_a_password_in_a_location_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput, match="options") as caught:
        open_file_io("s3://").read("s3://user:hush@bucket/f")
    assert "hush" not in str(caught.value)
