"""Logins with access tokens: gives aiokafka current tokens, and reads why a broker refuses one.

aiokafka takes a refused token for an accepted one: the broker answers with the reason and waits for the client to
confirm it (RFC 7628), then closes the connection at the next request. So a wrong audience looked like a broker that is
down. aiokafka also logs what it sends, with passwords and tokens, if its loggers are at DEBUG.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec
from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import AIOKafkaConnection, OAuthAuthenticator
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import SaslAuthenticateRequest_v0, SaslAuthenticateRequest_v1

from tidelake.ingest.access_tokens import AccessToken, TokenCache, TokenUnavailable
from tidelake.ingest.secrets import HIDDEN


class LoginError(KafkaError):  # type: ignore[misc]
    """A failed login. The message has the reason and the remedy."""

    def __str__(self) -> str:
        return str(self.args[0])

    __repr__ = __str__


class LoginRefused(LoginError):
    """A login that fails again if it is repeated."""

    retriable = False


class LoginUnavailable(LoginError):
    """A login that is not possible now."""

    retriable = True


class TokenLogin(AbstractTokenProvider):  # type: ignore[misc]
    """The login of a client with access tokens.

    extensions: names and values that are sent with a token.
    remedy: what to check when a broker refuses a token.
    """

    def __init__(self, tokens: TokenCache, extensions: Mapping[str, str], remedy: str) -> None:
        self._tokens = tokens
        self._extensions = dict(extensions)
        self._remedy = remedy
        self.last: AccessToken | None = None  # the token of the last login

    async def token(self) -> str:
        """Return a valid token. Raises LoginRefused or LoginUnavailable."""
        return (await self.current()).value.reveal()

    async def current(self) -> AccessToken:
        """Return a valid token with its times. Raises LoginRefused or LoginUnavailable."""
        try:
            self.last = await asyncio.to_thread(self._tokens.token)
        except TokenUnavailable as error:
            raise (LoginRefused if error.is_final else LoginUnavailable)(str(error)) from None
        return self.last

    def extensions(self) -> dict[str, str]:
        return self._extensions

    def discard(self) -> None:
        """Forget the token of the last login, because a broker refused it."""
        if self.last is not None:
            self._tokens.discard(self.last)

    def refused(self, answer: bytes) -> LoginRefused:
        """Return the error for a refused token.

        answer: the broker's, with the reason.
        """
        try:
            said = msgspec.json.decode(answer, type=dict[str, Any])
            text = ", ".join(f"{value}" if name == "status" else f"{name} {value}" for name, value in said.items())
        except (msgspec.MsgspecError, UnicodeDecodeError):
            text = answer[:200].decode(errors="replace")
        about = self.last.description if self.last is not None else ""
        return LoginRefused(
            f"the broker refused the access token: {text}"
            + (f" (the token: {about})" if about else "")
            + f". {self._remedy}"
        )


class _TokenAuthenticator(OAuthAuthenticator):  # type: ignore[misc]
    """aiokafka's exchange of messages, but it reads the broker's answer."""

    def __init__(self, login: TokenLogin) -> None:
        super().__init__(sasl_oauth_token_provider=login)
        self._login = login

    async def step(self, payload: bytes | None) -> Any:
        if payload:
            raise self._login.refused(payload)
        return await super().step(payload)


_theirs: Final = AIOKafkaConnection.authenticator_oauth


def _authenticator(self: Any) -> Any:
    login = self._sasl_oauth_token_provider
    return _TokenAuthenticator(login) if isinstance(login, TokenLogin) else _theirs(self)


class _HiddenCredentials(logging.Filter):
    """Hides the credentials in aiokafka's lines about requests."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and any(isinstance(one, _LOGIN_REQUESTS) for one in record.args):
            record.args = tuple(
                f"{type(one).__name__}({HIDDEN})" if isinstance(one, _LOGIN_REQUESTS) else one for one in record.args
            )
        return True


_LOGIN_REQUESTS: Final = (SaslAuthenticateRequest_v0, SaslAuthenticateRequest_v1)
_hidden: Final = _HiddenCredentials()


def install_logins() -> None:
    """Install our exchange of messages and the filter of log lines, once. Other uses of aiokafka keep theirs."""
    AIOKafkaConnection.authenticator_oauth = _authenticator
    logging.getLogger(AIOKafkaConnection.__module__).addFilter(_hidden)
