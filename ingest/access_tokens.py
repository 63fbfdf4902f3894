"""Access tokens of OAuth 2.0 for services: requests them from a token endpoint, and renews them in time.

A service shows its id and secret, and gets a token that is valid for some minutes (client credentials, RFC 6749,
section 4.4). Kafka brokers and schema registries accept such tokens. All calls block, and are bounded in time.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from ssl import SSLContext
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode, urlsplit

import msgspec
import urllib3

from tidelake.ingest.secrets import HIDDEN, Secret
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger

_CONNECT_TIMEOUT_S: Final = 5.0
_READ_TIMEOUT_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 1 << 20
_LIFETIME_S: Final = 300.0  # of a token without a known lifetime
_RENEWED_AT: Final = 0.8  # part of its lifetime after which a token is renewed, as in Java's client
_RENEWAL_RETRY_S: Final = 5.0
_TRANSIENT_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
_TRANSIENT_ERRORS: Final = frozenset({"temporarily_unavailable", "server_error", "slow_down"})
_SKEW_MIN_S: Final = 5.0  # smaller differences of clocks are delays of the network

_log = get_logger(__name__)


class TokenUnavailable(Exception):
    """No access token could be obtained. The message has the reason and the remedy, and no secret.

    is_final: a repeated request would get the same answer.
    """

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token.

    obtained_s, expires_s: monotonic times. The clock of this machine may be wrong; it doesn't matter.
    skew_s: seconds by which the token endpoint's clock is ahead of this machine's; None if it is unknown.
    """

    value: Secret
    obtained_s: float
    expires_s: float
    skew_s: float | None = None

    def renewal_s(self, part: float = _RENEWED_AT) -> float:
        """Return the monotonic time when this part of its lifetime is over."""
        return self.obtained_s + part * (self.expires_s - self.obtained_s)

    @property
    def description(self) -> str:
        """What the token says about itself, for the message of a service that refuses it; empty for opaque tokens."""
        claims = _claims(self.value.reveal())
        found = [f"{name} {claims[name]}" for name in ("iss", "aud", "scope", "scp") if claims.get(name)]
        for name, meaning in (("iat", "valid from"), ("exp", "to")):
            if isinstance(claims.get(name), int):
                found.append(f"{meaning} {datetime.fromtimestamp(claims[name], UTC):%Y-%m-%dT%H:%M:%SZ}")
        text = ", ".join(found)
        if self.skew_s is not None and abs(self.skew_s) >= _SKEW_MIN_S:
            text += f"; the token endpoint's clock differs from this machine's by {self.skew_s:+.0f} s"
        return text


def _claims(token: str) -> dict[str, Any]:
    """Return the claims of a JSON web token, which are not checked; empty for another kind of token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        decoded = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        return msgspec.json.decode(decoded, type=dict[str, Any])
    except (ValueError, msgspec.MsgspecError):
        return {}


class TokenSource(Protocol):
    """A way to get tokens."""

    def request(self) -> AccessToken:
        """Return a new token. Raises TokenUnavailable."""


@dataclass(frozen=True, slots=True)
class CredentialNames:
    """The names of the settings in messages."""

    endpoint: str
    client_id: str
    client_secret: str
    scope: str
    cafile: str


class _Answer(msgspec.Struct):
    access_token: str | None = None
    expires_in: float | None = None
    error: str | None = None
    error_description: str | None = None


_read_answer: Final = msgspec.json.Decoder(_Answer, strict=False).decode


@dataclass(frozen=True)
class ClientCredentials:
    """The client credentials of a service at a token endpoint.

    scope: what the token is for; empty for the client's default.
    context: for `https` endpoints.
    clock: the monotonic time in seconds; tests replace it.
    """

    endpoint: str
    client_id: str
    client_secret: Secret
    scope: str
    names: CredentialNames
    context: SSLContext | None = None
    clock: Callable[[], float] = field(default=lambda: env.monotonic_s(), repr=False)

    def request(self) -> AccessToken:
        """See `TokenSource.request`. One request, without retries; it ends within `_READ_TIMEOUT_S` and a few."""
        asked_s, asked_at = self.clock(), env.wall_s()
        # RFC 6749, section 2.3.1: both are form-encoded. Not every server decodes them, so the plain ones are tried,
        # too, if they differ. Java's client sends the plain ones.
        plain = (self.client_id, self.client_secret.reveal())
        answer, headers, status = self._post((quote_plus(plain[0]), quote_plus(plain[1])))
        if status in (400, 401) and answer.error in (None, "invalid_client") and tuple(map(quote_plus, plain)) != plain:
            answer, headers, status = self._post(plain)
        if status != 200 or not answer.access_token:
            raise self._refusal(answer, status)
        claims = _claims(answer.access_token)
        lifetimes = [answer.expires_in] if answer.expires_in is not None else []
        if isinstance(claims.get("exp"), int) and isinstance(claims.get("iat"), int):
            lifetimes.append(float(claims["exp"] - claims["iat"]))
        lifetime_s = max(0.0, min(lifetimes, default=_LIFETIME_S))
        return AccessToken(Secret(answer.access_token), asked_s, asked_s + lifetime_s, _skew_s(headers, asked_at))

    def _post(self, login: tuple[str, str]) -> tuple[_Answer, Mapping[str, str], int]:
        form = {"grant_type": "client_credentials"} | ({"scope": self.scope} if self.scope else {})
        given: dict[str, Any] = {} if self.context is None else {"ssl_context": self.context}
        try:
            with urllib3.PoolManager(**given) as pool:
                response = pool.request(
                    "POST",
                    self.endpoint,
                    body=urlencode(form),
                    headers={
                        "Authorization": f"Basic {base64.b64encode(':'.join(login).encode()).decode()}",
                        "Content-Type": "application/x-www-form-urlencoded",
                        "Accept": "application/json",
                    },
                    retries=False,
                    redirect=False,  # the secret goes to the configured address only
                    timeout=urllib3.Timeout(connect=_CONNECT_TIMEOUT_S, read=_READ_TIMEOUT_S),
                    preload_content=False,
                )
                body = response.read(_ANSWER_BYTES_MAX)
                headers, status = response.headers, response.status
                response.release_conn()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise self._unreachable(error) from None
        try:
            return _read_answer(body), headers, status
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return _Answer(error_description=body[:200].decode(errors="replace")), headers, status

    def _unreachable(self, error: Exception) -> TokenUnavailable:
        if isinstance(error, urllib3.exceptions.SSLError):
            return TokenUnavailable(
                f"{self._place}: TLS failed: {error}. Set {self.names.cafile} to the certificates to trust", True
            )
        return TokenUnavailable(
            f"{self._place} doesn't answer: {error}. Check {self.names.endpoint}, and that this machine may reach it",
            False,
        )

    @property
    def _place(self) -> str:
        parts = urlsplit(self.endpoint)
        return f"the token endpoint {parts.scheme}://{parts.netloc}{parts.path}"

    def _refusal(self, answer: _Answer, status: int) -> TokenUnavailable:
        said = ": ".join(filter(None, (answer.error, answer.error_description)))
        text = f"{self._place}: HTTP {status} {said}".rstrip().replace(self.client_secret.reveal() or "\0", HIDDEN)
        names = self.names
        match answer.error:
            case "invalid_client" | "unauthorized_client" | "access_denied":
                remedy = (
                    f"Check {names.client_id} and {names.client_secret}, and whether the client or its secret has "
                    "expired"
                )
            case "invalid_scope" | "invalid_target":
                remedy = f"Set {names.scope} to a scope that this client may ask for"
            case _ if status in (401, 403):
                remedy = f"Check {names.client_id} and {names.client_secret}"
            case _ if status in _TRANSIENT_STATUSES or answer.error in _TRANSIENT_ERRORS:
                return TokenUnavailable(f"{text}. Start again when it works", False)
            case None:
                remedy = f"This is not a token endpoint: correct {names.endpoint}"
            case _:
                remedy = f"Check {names.endpoint}, {names.client_id} and {names.scope}"
        return TokenUnavailable(f"{text}. {remedy}", True)


def _skew_s(headers: Mapping[str, str], asked_at: float) -> float | None:
    try:
        return parsedate_to_datetime(headers["Date"]).timestamp() - asked_at
    except (KeyError, ValueError, TypeError):
        return None


class TokenCache:
    """The current token of a source. Several threads may use it.

    A token is renewed when most of its lifetime is over. If this fails, the old one is used while it is valid.

    clock: the monotonic time in seconds; tests replace it.
    """

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._lock = env.Lock()
        self._held: AccessToken | None = None
        self._retry_s = 0.0

    def token(self) -> AccessToken:
        """Return a valid token. Raises TokenUnavailable."""
        with self._lock:
            held, now_s = self._held, env.monotonic_s()
            if held is not None and (now_s < held.renewal_s() or now_s < min(self._retry_s, held.expires_s)):
                return held
            try:
                self._held = self._source.request()
            except TokenUnavailable as error:
                if held is None or env.monotonic_s() >= held.expires_s:
                    self._held = None
                    raise
                self._retry_s = env.monotonic_s() + _RENEWAL_RETRY_S
                left_s = round(held.expires_s - env.monotonic_s())
                _log.warning("the access token could not be renewed", reason=str(error), valid_for_s=left_s)
                return held
            return self._held

    def discard(self, token: AccessToken) -> None:
        """Forget a token that was refused. The next call requests another one."""
        with self._lock:
            if self._held is token:
                self._held = None
