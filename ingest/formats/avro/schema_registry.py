"""Reads schemas by id from a Confluent-compatible schema registry over HTTP.

The schema of an id never changes, so each id is requested once.

Source: Confluent's Schema Registry API, `GET /schemas/ids/{id}` and `GET /subjects/{subject}/versions/{version}`.
Apicurio, Karapace and Redpanda have the same API.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final
from urllib.parse import quote

import msgspec
import urllib3

from tidelake.errors import BadInput, RegistryUnavailable
from tidelake.ingest.access_tokens import (
    AccessToken,
    ClientCredentials,
    CredentialNames,
    TokenCache,
    TokenUnavailable,
)
from tidelake.ingest.formats.avro.framing import SchemaId
from tidelake.ingest.formats.avro.registry_options import RegistryOptions
from tidelake.ingest.formats.values.json_text import BadValue
from tidelake.ingest.secrets import Secret
from tidelake.ingest.tls import TlsFiles, TlsNames, client_context
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff

_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 10.0
_BACKOFF: Final = ExponentialBackoff(200, 5_000)
_TRANSIENT_ERRORS: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_AVRO: Final = "AVRO"  # the type of schemas that name none
_REFUSED: Final = frozenset({401, 403})
_ANSWER_BYTES_MAX: Final = 64 << 20
_REFERENCES_MAX: Final = 200
_HEADERS: Final = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema of the registry.

    text: the schema's JSON.
    references: the texts of schemas whose types it uses. Each follows the schemas that it uses itself.
    names: the name by which each of these schemas is referred to: with Protobuf, that of the imported file.
    """

    text: str
    references: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


class _Reference(msgspec.Struct):
    subject: str
    version: int
    name: str = ""


class _Answer(msgspec.Struct, rename={"schema_type": "schemaType"}):
    schema: str
    schema_type: str | None = None
    references: list[_Reference] | None = None


_read_answer: Final = msgspec.json.Decoder(_Answer).decode


class SchemaRegistry:
    """A client of a schema registry. It caches every schema. Two threads must not use it at the same time.

    sleep: waits for some seconds; tests replace it.
    clock: the monotonic time in seconds; tests replace it.
    kind: the type of its schemas, as the registry names it; others are refused.
    """

    def __init__(
        self,
        options: RegistryOptions,
        sleep: Callable[[float], None] = lambda wait_s: env.sleep(wait_s),
        clock: Callable[[], float] = lambda: env.monotonic_s(),
        kind: str = _AVRO,
    ) -> None:
        if not options.urls:
            raise BadInput(
                f"{kind.capitalize()} records refer to their schemas by id: set `schema_registry_url` in "
                "`format_options` to the registry that the connector's converter writes to"
            )
        self._options = options
        self._kind = kind
        self._sleep = sleep
        self._clock = clock
        self._schemas: dict[SchemaId, RegisteredSchema] = {}
        self._refused_token: AccessToken | None = None
        headers = dict(_HEADERS)
        if options.basic_auth_user_info:
            headers |= urllib3.make_headers(basic_auth=options.basic_auth_user_info)
        if options.bearer_auth_token:
            headers["Authorization"] = f"Bearer {options.bearer_auth_token}"
        if options.bearer_auth_logical_cluster:
            headers["target-sr-cluster"] = options.bearer_auth_logical_cluster
        if options.bearer_auth_identity_pool_id:
            headers["Confluent-Identity-Pool-Id"] = options.bearer_auth_identity_pool_id
        context = _tls_context(options)
        self._tokens = _token_cache(options, context)
        self._pool = urllib3.PoolManager(
            headers=headers,
            retries=urllib3.Retry(0, redirect=3, raise_on_redirect=True),  # `_get` retries until its timeout
            timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
            ssl_context=context,
        )

    def schema(self, id_: SchemaId) -> RegisteredSchema:
        """Return the schema of an id.

        Raises BadValue for an id that is unknown to the registry or is of a schema of another type. Raises
        RegistryUnavailable if the registry does not answer in time, or rejects the request.
        """
        found = self._schemas.get(id_)
        if found is None:
            path = f"/schemas/ids/{id_}" if isinstance(id_, int) else f"/schemas/guids/{id_}"
            answer = self._answer(path, f"schema {id_}")
            referred = self._references(answer, {})
            names, texts = tuple(name for name, _ in referred), tuple(text for _, text in referred)
            found = RegisteredSchema(answer.schema, texts, names)
            self._schemas[id_] = found
        return found

    def check(self) -> None:
        """Ask for a schema, which need not exist. Raises RegistryUnavailable as `schema` does."""
        with suppress(BadValue):  # the registry answered
            self._get("/schemas/ids/1", "schema 1")

    def _references(self, answer: _Answer, seen: dict[tuple[str, int], None]) -> tuple[tuple[str, str], ...]:
        """Return name and text of each schema that is referred to."""
        found: list[tuple[str, str]] = []
        for reference in answer.references or ():
            name = (reference.subject, reference.version)
            if name in seen:
                continue
            seen[name] = None
            if len(seen) > _REFERENCES_MAX:
                raise BadValue(f"the schema refers to more than {_REFERENCES_MAX} others")
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}"
            referred = self._answer(path, f"version {reference.version} of {reference.subject}")
            found += [*self._references(referred, seen), (reference.name, referred.schema)]
        return tuple(found)

    def _answer(self, path: str, what: str) -> _Answer:
        try:
            answer = _read_answer(self._get(path, what))
        except (msgspec.MsgspecError, UnicodeDecodeError) as e:
            raise BadValue(f"{what}: the answer of the schema registry does not have Confluent's form ({e})") from None
        if (answer.schema_type or _AVRO) != self._kind:
            raise BadValue(f"{what} is a schema of {answer.schema_type or _AVRO}, not of {self._kind.capitalize()}")
        return answer

    def _get(self, path: str, what: str) -> bytes:
        """Return the body of an answer. All URLs are requested in turn until one answers or the timeout is over."""
        give_up = self._clock() + self._options.schema_registry_timeout_s
        attempt = 0
        while True:
            for url in self._options.urls:
                try:
                    return self._request(url + path, what)
                except _TransientError as e:
                    reason = f"{url}: {e}"
            wait_s = _BACKOFF.wait_ms(attempt, lambda: 0.5) / 1000
            attempt += 1
            if self._clock() + wait_s >= give_up:
                raise RegistryUnavailable(
                    f"{what} could not be read from the schema registry for "
                    f"{self._options.schema_registry_timeout_s:g} s. The last error: {reason}. Reading stopped before "
                    "the records of this schema: check the registry (`schema_registry_url`) and start again"
                )
            self._sleep(wait_s)

    def _token(self, url: str) -> AccessToken | None:
        """Return the access token to send; None if none is needed."""
        try:
            return None if self._tokens is None else self._tokens.token()
        except TokenUnavailable as error:
            if error.is_final:
                raise RegistryUnavailable(f"{url}: no access token for the registry: {error}") from None
            raise _TransientError(str(error)) from None

    def _request(self, url: str, what: str) -> bytes:
        token = self._token(url)
        headers = {} if token is None else {"Authorization": f"Bearer {token.value.reveal()}"}
        try:
            response: Any = self._pool.request(
                "GET", url, preload_content=False, headers={**self._pool.headers, **headers}
            )
            try:
                body: bytes = response.read(_ANSWER_BYTES_MAX)
            finally:
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as e:
            if isinstance(getattr(e, "reason", e), urllib3.exceptions.SSLError):
                raise RegistryUnavailable(
                    f"{url}: TLS failed: {e}. Set ssl_ca_location to the certificates to trust"
                ) from None
            raise _TransientError(str(e)) from None
        if response.status == 200:
            self._refused_token = None
            return body
        answer = f"HTTP {response.status} {body[:200].decode(errors='replace')}"
        if response.status in _TRANSIENT_ERRORS:
            raise _TransientError(answer)
        if response.status in _REFUSED and self._tokens is not None and token is not None:
            self._tokens.discard(token)
            if self._refused_token is None and response.status == 401:
                self._refused_token = token
                raise _TransientError(answer)  # it may have been revoked: once more, with a new token
            raise RegistryUnavailable(
                f"{url}: {answer}. The registry refused the access token ({token.description}): check "
                "bearer_auth_scope, bearer_auth_logical_cluster and bearer_auth_identity_pool_id"
            )
        if response.status in _REFUSED:
            raise RegistryUnavailable(
                f"{url}: {answer}. The registry refused the credentials: set basic_auth_user_info, or bearer_auth_token"
            )
        if not _is_registry_error(body):
            raise RegistryUnavailable(f"{url}: {answer}. This is not a schema registry: correct schema_registry_url")
        raise BadValue(f"the schema registry does not know {what} ({url}: {answer})")


_TLS_NAMES: Final = TlsNames("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password")
_CREDENTIAL_NAMES: Final = CredentialNames(
    "bearer_auth_issuer_endpoint_url",
    "bearer_auth_client_id",
    "bearer_auth_client_secret",
    "bearer_auth_scope",
    "ssl_ca_location",
)


class FormatWithRegistry:
    """The base of formats whose records refer to schemas in a registry."""

    registry: RegistryOptions

    @property
    def registry_urls(self) -> tuple[str, ...]:
        return self.registry.urls

    def check_registry(self, limit_s: float) -> None:
        timeout_s = min(self.registry.schema_registry_timeout_s, limit_s)
        SchemaRegistry(replace(self.registry, schema_registry_timeout_s=timeout_s)).check()


def _tls_context(options: RegistryOptions) -> SSLContext:
    """Return the context of the registry and of the token endpoint. Raises BadInput for unusable files."""
    certificates = (options.ssl_ca_location, options.ssl_certificate_location, options.ssl_key_location)
    cafile, certfile, keyfile = (Path(path) if path else None for path in certificates)
    password = Secret(options.ssl_key_password) if options.ssl_key_password else None
    return client_context(TlsFiles(cafile, certfile, keyfile, password), _TLS_NAMES)


def _token_cache(options: RegistryOptions, context: SSLContext) -> TokenCache | None:
    if not options.bearer_auth_issuer_endpoint_url:
        return None
    return TokenCache(
        ClientCredentials(
            options.bearer_auth_issuer_endpoint_url,
            options.bearer_auth_client_id,
            Secret(options.bearer_auth_client_secret),
            options.bearer_auth_scope,
            _CREDENTIAL_NAMES,
            context if options.bearer_auth_issuer_endpoint_url.startswith("https:") else None,
        )
    )


def _is_registry_error(body: bytes) -> bool:
    """Return whether an error is a registry's own. Any other server may answer 404, too."""
    try:
        return "error_code" in msgspec.json.decode(body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False


class _TransientError(Exception):
    """A request failed, and a retry may succeed."""
