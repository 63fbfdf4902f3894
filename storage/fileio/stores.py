"""Opens the object-store client of a location with Paimon's options.

Source: Java `S3FileIO`, `GSFileIO`, `AzureFileIO` (for prefixes), Hadoop's option names, pypaimon's `fs.s3.*`. Settings
without an option come from the environment variables that obstore reads: `AWS_*`, `GOOGLE_*`, `AZURE_*`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.location import AZURE_SCHEMES, GCS_SCHEMES, REMOTE_SCHEMES, S3_SCHEMES
from tidelake.storage.fileio.store_errors import first_paragraph

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_log = get_logger(__name__)

Options = tuple[tuple[str, str], ...]

# A slow connection is no failure as long as bytes arrive. If the store is down, the caller should know within about a
# minute: the caller recovers, and a longer wait does not help.
_CLIENT: Final[ClientConfig] = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=60),
    "timeout": timedelta(minutes=5),
}
RETRY: Final[RetryConfig] = {
    "max_retries": 8,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}


def store_options(options: Mapping[str, str]) -> Options:
    """Return the options for object stores, sorted. Other options (a catalog's password) must not be passed on."""
    prefixes = tuple(prefix for kind in _KINDS for prefix in kind.prefixes)
    return tuple(sorted((key, value) for key, value in options.items() if key.startswith(prefixes)))


def endpoint_of(options: Options) -> str:
    """Return the address that the options name; "" for the cloud's own. Paths in different stores may be the same."""
    names = ("endpoint",)
    given = [value for key, value in options if key.lower().rpartition(".")[2] in names]
    return (
        given[0] if given else next((os.environ[name] for name in sorted(_ENDPOINT_VARIABLES & os.environ.keys())), "")
    )


@lru_cache(maxsize=64)
def open_store(scheme: str, authority: str, options: Options) -> ObjectStore:
    """Return the client of one bucket, with its connections and credentials; one for each process.

    Raises BadInput for an invalid location or option, UnsupportedFeature for an option that must not be ignored.
    """
    kind = next((kind for kind in _KINDS if scheme in kind.schemes), None)
    if kind is None:
        raise BadInput(f"{scheme}:// is not an object store; the supported ones are {', '.join(REMOTE_SCHEMES)}")
    given = _StoreOptions(options, kind.prefixes)
    try:
        store = kind.open(authority, given)
    except BaseError as error:
        raise BadInput(f"cannot reach {scheme}://{authority}: {first_paragraph(error)}") from None
    if unused := given.unused():
        # Settings of other clients (pool sizes, for example) do no harm, but the user should know that they have no
        # effect.
        _log.warning("object store options without effect", store=f"{scheme}://{authority}", options=unused)
    return store


class _StoreOptions:
    """Options without their prefix, in lower case, with `.` for `-`: Paimon accepts `access-key` and `access.key`."""

    def __init__(self, options: Options, prefixes: tuple[str, ...]) -> None:
        self._left: dict[str, tuple[str, str]] = {}
        for key, value in options:
            prefix = next((prefix for prefix in prefixes if key.startswith(prefix)), None)
            if prefix is not None:
                self._left[key.removeprefix(prefix).lower().replace("-", ".")] = (key, value)

    def take(self, name: str) -> str | None:
        return self._left.pop(name, (name, None))[1]

    def take_flag(self, name: str) -> bool | None:
        key, value = self._left.pop(name, (name, None))
        if value is not None and value.strip().lower() not in ("true", "false"):
            raise BadInput(f"option {key} is {value!r}; write true or false")
        return None if value is None else value.strip().lower() == "true"

    def take_renamed(self, names: Mapping[str, str]) -> dict[str, Any]:
        """Return those of `names` that are set, under obstore's names.

        Raises BadInput for a value that is invalid in a request header: obstore would panic.
        """
        taken = {}
        for name in names:
            if name in self._left:
                key, value = self._left.pop(name)
                if names[name] in _HEADER_OPTIONS and not _HEADER_TEXT.fullmatch(value):
                    raise BadInput(f"option {key} contains a line break, or a character that is not ASCII. Remove it")
                taken[names[name]] = value
        return taken

    def unused(self) -> list[str]:
        """Return keys that no store used. Raises UnsupportedFeature for an option that must not be ignored."""
        keys = sorted(key for key, _ in self._left.values())
        for key in keys:
            if "encryption" in key:
                raise UnsupportedFeature(
                    key,
                    "files would be written without the requested encryption",
                    "Set it as the bucket's default, or with AWS_SERVER_SIDE_ENCRYPTION and the AWS_SSE_* variables",
                )
        return keys


def _open_s3(bucket: str, given: _StoreOptions) -> ObjectStore:
    config: Any = {"bucket": bucket, **given.take_renamed(_S3_NAMES)}
    if "Anonymous" in (given.take("aws.credentials.provider") or ""):
        config["skip_signature"] = True
    # obstore puts the bucket into the path. Most stores accept this; a few (Alibaba's OSS) need it in the host name.
    in_host_name = given.take_flag("path.style.access") is False
    if in_host_name:
        config["virtual_hosted_style_request"] = True
    scheme = "http" if given.take_flag("connection.ssl.enabled") is False else "https"
    client: ClientConfig = {**_CLIENT}
    if (endpoint := given.take("endpoint")) is not None:
        url = endpoint if "://" in endpoint else f"{scheme}://{endpoint}"
        _check_endpoint("option s3.endpoint", endpoint, url)
        if in_host_name:
            url = url.replace("://", f"://{bucket}.", 1)
            _check_endpoint(f"option s3.endpoint with bucket {bucket!r} in its host name", endpoint, url)
        config["endpoint"] = url
        client["allow_http"] = url.startswith("http://")
    else:
        for variable in _ENDPOINT_VARIABLES & os.environ.keys():
            _check_endpoint(f"environment variable {variable}", os.environ[variable], os.environ[variable])
    return S3Store(config=config, client_options=client, retry_config=RETRY)


def _check_endpoint(where: str, given: str, url: str) -> None:
    """Raise BadInput for an invalid address: obstore would panic at the first request."""
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and _HOST.fullmatch(parts.hostname or "") and parts.port != 0
    except ValueError:  # a port out of range, half an IPv6 address
        is_address = False
    if not is_address or not _ADDRESS_TEXT.fullmatch(url):
        shown = re.sub(r"(^|//)[^/@]*@", r"\1***@", given)  # a password must not appear in messages and logs
        raise BadInput(f"{where} is {shown!r}, which is not an address. Write http://HOST:PORT or https://HOST")


_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_.])?|[0-9a-fA-F:.]+")
_ADDRESS_TEXT: Final = re.compile(r"[a-z]+://[A-Za-z0-9._:\[\]-]+(/[A-Za-z0-9._~%/-]*)?")
_HEADER_OPTIONS: Final = frozenset({"access_key_id", "secret_access_key", "session_token", "region", "account_name"})
_HEADER_TEXT: Final = re.compile(r"[\t -~]*")
_ENDPOINT_VARIABLES: Final = frozenset({"AWS_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"})

_S3_NAMES: Final = {
    "access.key": "access_key_id",
    "accesskeyid": "access_key_id",  # pypaimon: fs.s3.accessKeyId
    "secret.key": "secret_access_key",
    "accesskeysecret": "secret_access_key",
    "session.token": "session_token",
    "securitytoken": "session_token",
    "region": "region",
    "endpoint.region": "region",
}


def _open_gcs(bucket: str, given: _StoreOptions) -> ObjectStore:
    given.take("auth.type")  # a key file, or otherwise the credentials of the environment
    config: Any = {"bucket": bucket, **given.take_renamed({"auth.service.account.json.keyfile": "service_account"})}
    return GCSStore(config=config, client_options=_CLIENT, retry_config=RETRY)


def _open_azure(authority: str, given: _StoreOptions) -> ObjectStore:
    """Open `container@account.dfs.core.windows.net`, as Hadoop writes it, or only the container's name."""
    container, at, host = authority.partition("@")
    account, _, domain = host.partition(".")
    if at and domain not in ("dfs.core.windows.net", "blob.core.windows.net"):
        raise BadInput(
            f"{authority} is not container@account.dfs.core.windows.net; for another cloud write only the container, "
            "and set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ENDPOINT"
        )
    config: Any = {"container_name": container, **given.take_renamed({"account.name": "account_name"})}
    if account:
        config["account_name"] = account
    names = ["account.key", *(f"account.key.{account.lower()}.{kind}.core.windows.net" for kind in ("dfs", "blob"))]
    config |= given.take_renamed(dict.fromkeys(names, "account_key"))
    return AzureStore(config=config, client_options=_CLIENT, retry_config=RETRY)


@dataclass(frozen=True, slots=True)
class _Kind:
    schemes: tuple[str, ...]
    prefixes: tuple[str, ...]
    open: Callable[[str, _StoreOptions], ObjectStore]


_KINDS: Final = (
    _Kind(S3_SCHEMES, ("s3.", "s3a.", "fs.s3.", "fs.s3a."), _open_s3),
    _Kind(GCS_SCHEMES, ("gs.", "fs.gs."), _open_gcs),
    _Kind(AZURE_SCHEMES, ("azure.", "fs.azure.", "fs.wasb."), _open_azure),
)
