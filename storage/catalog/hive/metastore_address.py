"""The address of a metastore, from catalog options: `thrift://host:9083`, or a `hive-site.xml`.

Source: Java `hive/HiveCatalog.java` (createHiveConf), Hive `conf/HiveConf.java`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.model.options.catalog_values import CatalogValues
from tidelake.storage.model.options.values import parse_boolean

_URI: Final = re.compile(r"thrift://([^/:@]+|\[[0-9a-fA-F:]+\])(?::(\d+))?/?")
_DEFAULT_PORT: Final = 9083
_EXAMPLE: Final = "write thrift://host:9083, several with commas between them"
_SITE_FILE: Final = "hive-site.xml"
# What a metastore may demand of its clients, and this client does not support: name in hive-site.xml -> feature.
_UNSUPPORTED_OPTIONS: Final = {
    "hive.metastore.sasl.enabled": "Kerberos",
    "hive.metastore.use.SSL": "TLS",
    "hive.metastore.thrift.framed.transport.enabled": "framed messages",
    "hive.metastore.thrift.compact.protocol.enabled": "compact messages",
}


@dataclass(frozen=True, slots=True)
class MetastoreAddress:
    """The address of a metastore. Its servers are equivalent; the first one that answers is used.

    servers: (host, port) of each server.
    pool_size: the number of connections that are kept open.
    """

    servers: tuple[tuple[str, int], ...]
    pool_size: int = 2

    def __str__(self) -> str:
        return ",".join(f"thrift://{host}:{port}" for host, port in self.servers)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> MetastoreAddress:
        """Read the address from the options of the catalog.

        options: `uri`, `hive-conf-dir`, `client-pool-size`.

        Raises BadInput for an invalid address, UnsupportedFeature for a transport that isn't supported.
        """
        site = _site_properties(options["hive-conf-dir"]) if "hive-conf-dir" in options else {}
        for key, what in _UNSUPPORTED_OPTIONS.items():
            if parse_boolean(site.get(key, "false")):
                raise UnsupportedFeature(
                    f"catalog option hive-conf-dir: {key} = true",
                    f"this release connects with plain Thrift, without {what}",
                    "Use a metastore that accepts plain Thrift, or use Java Paimon",
                )
        uri = options.get("uri", site.get("hive.metastore.uris", "")).strip()
        if not uri:
            raise BadInput(f"catalog option uri is missing: metastore = hive needs it; {_EXAMPLE}")
        servers = tuple(_server(part.strip()) for part in uri.split(",") if part.strip())
        return cls(servers, max(1, CatalogValues(options).client_pool_size))


def _server(uri: str) -> tuple[str, int]:
    match = _URI.fullmatch(uri)
    if match is None:
        raise BadInput(f"catalog option uri = {uri!r} is not the address of a Hive metastore; {_EXAMPLE}")
    return match[1].strip("[]"), int(match[2] or _DEFAULT_PORT)


def _site_properties(directory: str) -> dict[str, str]:
    """Return the properties of Hive's configuration file: name -> value."""
    path = Path(directory) / _SITE_FILE
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError) as e:
        raise BadInput(f"catalog option hive-conf-dir: {path} can't be read: {e}") from e
    found = {p.findtext("name", "").strip(): p.findtext("value", "").strip() for p in root.iter("property")}
    return {name: value for name, value in found.items() if name}
