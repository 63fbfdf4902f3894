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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlsplit

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.aws_credentials import AwsLogin
from tidelake.storage.fileio.location import AZURE_SCHEMES, GCS_SCHEMES, REMOTE_SCHEMES, S3_SCHEMES
from tidelake.storage.fileio.store_errors import first_paragraph

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_log = get_logger(__name__)

Options = tuple[tuple[str, str], ...]

# Options about who reads and writes, and how. One that doesn't act is refused; others only cost speed.
_MUST_ACT: Final = re.compile(
    r"encrypt|credential|assumed|proxy|requester|token|oauth|auth\.|secret|password|\.sas\.|profile|ca\.bundle|account"
)

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

    def peek(self, name: str) -> str | None:
        return self._left.get(name, (name, None))[1]

    def take_with_key(self, name: str) -> tuple[str, str | None]:
        """Return the key as it was given, and the value."""
        return self._left.pop(name, (name, None))

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
            if _MUST_ACT.search(key.lower()):
                raise UnsupportedFeature(
                    key,
                    "this release does not know it, and without it the store is reached as another user, by another "
                    "way or without the requested encryption",
                    "`tidelake help stores` lists the options that act; leave it out, or use one of them",
                )
        return keys


def _open_s3(bucket: str, given: _StoreOptions) -> ObjectStore:
    config: Any = {"bucket": bucket, **given.take_renamed(_S3_NAMES), **_encryption(given)}
    is_anonymous = _is_anonymous(given)
    if is_anonymous:
        config["skip_signature"] = True
    if given.take_flag("requester.pays.enabled"):
        config["request_payer"] = True
    # obstore puts the bucket into the path. Most stores accept this; a few (Alibaba's OSS) need it in the host name.
    in_host_name = given.take_flag("path.style.access") is False
    if in_host_name:
        config["virtual_hosted_style_request"] = True
    scheme = "http" if given.take_flag("connection.ssl.enabled") is False else "https"
    ca_bundle = given.peek("ca.bundle") or os.environ.get("AWS_CA_BUNDLE")
    client: ClientConfig = {**_CLIENT, **_network(given, "s3.", ca_bundle)}
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
    login = _login(given, config, ca_bundle)
    provider = None if is_anonymous else login.provider()
    if provider is None:
        return S3Store(config=config, client_options=client, retry_config=RETRY)
    for name in ("access_key_id", "secret_access_key", "session_token"):
        config.pop(name, None)
    return S3Store(config=config, client_options=client, retry_config=RETRY, credential_provider=provider)


def _login(given: _StoreOptions, config: Mapping[str, Any], ca_bundle: str | None) -> AwsLogin:
    duration = given.take("assumed.role.session.duration")
    duration_s = None
    if duration is not None:
        match = re.fullmatch(r"([0-9]+) *(s|m|h|)", duration.strip())
        if match is None:
            raise BadInput(f"option s3.assumed.role.session.duration is {duration!r}; write seconds, or as 30m, 1h")
        duration_s = int(match[1]) * {"s": 1, "m": 60, "h": 3600, "": 1}[match[2]]
    return AwsLogin(
        access_key=config.get("access_key_id"),
        secret_key=config.get("secret_access_key"),
        session_token=config.get("session_token"),
        profile=given.take("profile"),
        role_arn=given.take("assumed.role.arn"),
        external_id=given.take("assumed.role.external.id"),
        session_name=given.take("assumed.role.session.name"),
        duration_s=duration_s,
        region=given.take("assumed.role.sts.endpoint.region") or config.get("region"),
        sts_endpoint=given.take("assumed.role.sts.endpoint"),
        ca_bundle=ca_bundle,
    )


def _is_anonymous(given: _StoreOptions) -> bool:
    """Read Hadoop's list of classes. Raises UnsupportedFeature for a class that finds other credentials than we do."""
    key, value = given.take_with_key("aws.credentials.provider")
    names = [name.strip().rpartition(".")[2] for name in (value or "").split(",") if name.strip()]
    for name in names:
        if name.partition("$")[0] not in _PROVIDERS:
            raise UnsupportedFeature(
                f"{name} in option {key}",
                "this class of Hadoop can't be loaded here",
                "Leave it out: keys, profiles, web identities and roles of machines are found without it; for a role "
                "set s3.assumed.role.arn",
            )
    return any(name.startswith("Anonymous") for name in names)


# Classes whose credentials are found without them, in the order of AWS's tools.
_PROVIDERS: Final = frozenset(
    {
        "AnonymousAWSCredentialsProvider",
        "AnonymousCredentialsProvider",
        "AssumedRoleCredentialProvider",
        "AWSCredentialsProviderChain",
        "ContainerCredentialsProvider",
        "DefaultAWSCredentialsProviderChain",
        "DefaultCredentialsProvider",
        "EC2ContainerCredentialsProviderWrapper",
        "EnvironmentVariableCredentialsProvider",
        "IAMInstanceCredentialsProvider",
        "InstanceProfileCredentialsProvider",
        "ProfileAWSCredentialsProvider",
        "ProfileCredentialsProvider",
        "SimpleAWSCredentialsProvider",
        "TemporaryAWSCredentialsProvider",
        "WebIdentityTokenCredentialsProvider",
        "WebIdentityTokenFileCredentialsProvider",
    }
)


def _encryption(given: _StoreOptions) -> dict[str, Any]:
    """Return how the store encrypts new objects. Raises UnsupportedFeature for what the client would have to do."""
    key, algorithm = given.take_with_key("encryption.algorithm")
    if algorithm is None:
        key, algorithm = given.take_with_key("server.side.encryption.algorithm")
    secret = given.take("encryption.key") or given.take("server.side.encryption.key")
    bucket_key = given.take_flag("encryption.bucket.key.enabled")
    if algorithm is None:
        if secret is not None or bucket_key is not None:
            raise BadInput("options s3.encryption.*: set s3.encryption.algorithm as well, SSE-KMS for example")
        return {}
    name = _ENCRYPTIONS.get(algorithm.strip().upper())
    if name is None:
        raise UnsupportedFeature(
            f"{key} = {algorithm}",
            f"the store can encrypt with {', '.join(_ENCRYPTIONS)}; this is something else",
            "Choose one of them, or leave it out: a bucket has an encryption of its own",
        )
    found: dict[str, Any] = {"server_side_encryption": name}
    if name == "sse-c":
        if secret is None:
            raise BadInput(f"option {key} = {algorithm} needs s3.encryption.key, 32 bytes in base64")
        found["sse_customer_key_base64"] = secret
    elif secret is not None:
        if name == "AES256":
            raise BadInput(f"option {key} = {algorithm} has no key of its own; leave s3.encryption.key out")
        found["sse_kms_key_id"] = secret
    if bucket_key is not None:
        found["sse_bucket_key_enabled"] = bucket_key
    return found


_ENCRYPTIONS: Final = {
    "SSE-S3": "AES256",
    "SSE-KMS": "aws:kms",
    "DSSE-KMS": "aws:kms:dsse",
    "SSE-C": "sse-c",
    "AES256": "AES256",
}


def _network(given: _StoreOptions, prefix: str, ca_file: str | None = None) -> ClientConfig:
    """Return the proxy and the certificates of a company's network.

    ca_file: what the environment names, if no option does. Other proxies come from HTTPS_PROXY and NO_PROXY.
    """
    found: ClientConfig = {}
    host, port = given.take("proxy.host"), given.take("proxy.port")
    user, password = given.take("proxy.username"), given.take("proxy.password")
    if host is None and (port or user or password):
        raise BadInput(f"options {prefix}proxy.*: the proxy is missing; set {prefix}proxy.host")
    if host is not None:
        secure = given.take_flag("proxy.ssl.enabled")
        address = f"{host}:{port}" if port else host
        _check_endpoint(f"option {prefix}proxy.host", address, f"http://{address}")
        account = f"{quote(user, safe='')}:{quote(password or '', safe='')}@" if user else ""
        found["proxy_url"] = f"{'https' if secure else 'http'}://{account}{address}"
    option, named = given.take_with_key("ca.bundle")
    if (path := named or ca_file) is not None:
        where = f"option {option}" if named else "environment variable AWS_CA_BUNDLE"
        found["root_certificate"] = _certificates(path, where)
    return found


def _certificates(path: str, where: str) -> bytes:
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise BadInput(f"{where} = {path}: {error.strerror}; name a file with certificates in PEM form") from None
    if b"-----BEGIN CERTIFICATE-----" not in data:
        raise BadInput(f"{where} = {path}: it has no certificate in PEM form (-----BEGIN CERTIFICATE-----)")
    return data


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
    given.take("auth.service.account.enable")
    config: Any = {"bucket": bucket, **given.take_renamed({"auth.service.account.json.keyfile": "service_account"})}
    client: ClientConfig = {**_CLIENT, **_network(given, "gs.")}
    return GCSStore(config=config, client_options=client, retry_config=RETRY)


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
    for name, obstore_name in _AZURE_NAMES.items():
        suffixed = [name, *(f"{name}.{account.lower()}.{kind}.core.windows.net" for kind in ("dfs", "blob"))]
        config |= given.take_renamed(dict.fromkeys(suffixed, obstore_name))
    for name in ("account.auth.type", "account.oauth.provider.type"):  # found by what is given
        for suffix in ("", f".{account.lower()}.dfs.core.windows.net", f".{account.lower()}.blob.core.windows.net"):
            given.take(f"{name}{suffix}")
    client: ClientConfig = {**_CLIENT, **_network(given, "azure.")}
    return AzureStore(config=config, client_options=client, retry_config=RETRY)


# Hadoop's names, which may end with the host of the account.
_AZURE_NAMES: Final = {
    "account.oauth2.client.id": "client_id",
    "account.oauth2.client.secret": "client_secret",
    "account.oauth2.msi.tenant": "tenant_id",
    "account.oauth2.token.file": "federated_token_file",
    "sas.fixed.token": "sas_key",
}


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
