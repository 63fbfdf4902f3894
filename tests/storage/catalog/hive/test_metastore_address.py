"""Addresses of metastores."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import pytest

from tidelake.errors import TidelakeError
from tidelake.storage.catalog.hive.metastore_address import MetastoreAddress

SITE = "<configuration><property><name>{}</name><value>{}</value></property></configuration>"


@pytest.mark.parametrize(
    ("uri", "servers"),
    [
        pytest.param("thrift://h:1234", (("h", 1234),), id="one"),
        pytest.param("thrift://h", (("h", 9083),), id="the usual port"),
        pytest.param("thrift://a:1, thrift://b:2/", (("a", 1), ("b", 2)), id="several"),
        pytest.param("thrift://[::1]:9", (("::1", 9),), id="a number of IPv6"),
    ],
)
def test_a_uri_may_name_several_servers(uri: str, servers: tuple[tuple[str, int], ...]) -> None:
    address = MetastoreAddress.of({"uri": uri, "client-pool-size": "7"})
    assert (address.servers, address.pool_size) == (servers, 7)
    assert pickle.loads(pickle.dumps(address)) == address


@pytest.mark.parametrize(
    ("options", "message"),
    [
        pytest.param({}, "uri is missing", id="none"),
        pytest.param({"uri": "h:9083"}, "not the address of a Hive metastore", id="no scheme"),
        pytest.param({"uri": "thrift://u:p@h:9083"}, "not the address", id="a password"),
        pytest.param({"hive-conf-dir": "/nowhere"}, "hive-site.xml can't be read", id="no configuration"),
    ],
)
def test_an_invalid_address_is_refused(options: Mapping[str, str], message: str) -> None:
    with pytest.raises(TidelakeError, match=message):
        MetastoreAddress.of(options)


def test_the_configuration_of_hive_names_the_metastore(tmp_path: Path) -> None:
    (tmp_path / "hive-site.xml").write_text(SITE.format("hive.metastore.uris", "thrift://site:1"))
    assert MetastoreAddress.of({"hive-conf-dir": str(tmp_path)}).servers == (("site", 1),)
    given = {"hive-conf-dir": str(tmp_path), "uri": "thrift://given:2"}
    assert MetastoreAddress.of(given).servers == (("given", 2),)


@pytest.mark.parametrize(("key", "name"), [("sasl.enabled", "Kerberos"), ("use.SSL", "TLS")])
def test_a_metastore_with_an_unsupported_transport_is_refused(tmp_path: Path, key: str, name: str) -> None:
    (tmp_path / "hive-site.xml").write_text(SITE.format(f"hive.metastore.{key}", "true"))
    with pytest.raises(TidelakeError, match=name):
        MetastoreAddress.of({"hive-conf-dir": str(tmp_path), "uri": "thrift://h"})
