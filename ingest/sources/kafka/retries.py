"""Requests to brokers that may be unreachable: they are tried again, after growing waits, until a time limit."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from aiokafka.errors import KafkaConnectionError, KafkaError

from tidelake.errors import BadInput, SourceUnavailable, TidelakeError
from tidelake.ingest.clock import Clock, wait_at_most
from tidelake.ingest.sources.kafka.broker_error_log import BrokerErrorLog
from tidelake.ingest.sources.kafka.login import LoginRefused
from tidelake.storage.base import env
from tidelake.storage.base.backoff import ExponentialBackoff

INITIAL_BACKOFF_MS: Final = 200
MAX_BACKOFF_MS: Final = 10_000
_STOP_TIMEOUT_MS: Final = 5_000  # limit after reading was stopped: the user should not wait for a broker
_BACKOFF: Final = ExponentialBackoff(INITIAL_BACKOFF_MS, MAX_BACKOFF_MS, jitter=(0.8, 1.2))

T = TypeVar("T")


class BrokerBackoff:
    """The waiting times before a broker that did not answer is tried again, from INITIAL_BACKOFF_MS to MAX_BACKOFF_MS.

    random: returns a number from 0 up to 1.
    """

    def __init__(self, random: Callable[[], float] = lambda: env.random_fraction()) -> None:
        self._random = random
        self._failures = 0

    def next_ms(self) -> int:
        """Return the waiting time after another failure."""
        wait_ms = _BACKOFF.wait_ms(self._failures, self._random)
        self._failures += 1
        return round(min(MAX_BACKOFF_MS, wait_ms))


class BrokerRetries:
    """Retries of requests to brokers.

    source: the source's name in messages.
    limit_ms: how long brokers may be unreachable.
    remedy: the remedy in the error after this time.
    """

    def __init__(
        self,
        source: str,
        limit_ms: int,
        clock: Clock,
        error_log: BrokerErrorLog,
        remedy: str = "Check `source.bootstrap_servers` and `source.security_protocol`, or start again when the broker "
        "is reachable",
    ) -> None:
        self._source = source
        self._longest_ms = self._limit_ms = limit_ms
        self._limit_lowered = asyncio.Event()  # wakes waiting tasks to check the limit again
        self._clock = clock
        self._error_log = error_log
        self._remedy = remedy

    def begin(self) -> None:
        """Reset the limit: brokers may be unreachable for `limit_ms` again."""
        self._limit_ms = self._longest_ms
        self._limit_lowered.clear()

    def shorten_timeout(self) -> None:
        """Let requests fail after `_STOP_TIMEOUT_MS`, because reading was stopped."""
        self._limit_ms = min(self._limit_ms, _STOP_TIMEOUT_MS)
        self._limit_lowered.set()

    async def run(self, what: str, attempt: Callable[[], Awaitable[T]]) -> T:
        """Try until an attempt succeeds or the time limit is reached. A request that a broker refuses is not repeated.

        what: the attempt's purpose in messages, for example "list topics".

        Raises SourceUnavailable, or BadInput for a refused request.
        """
        started_ms = self._clock.now_ms()
        reason: Exception | None = None
        backoff = BrokerBackoff()
        while True:
            deadline_ms = started_ms + self._limit_ms
            try:
                async with asyncio.timeout(max(1, deadline_ms - self._clock.now_ms()) / 1000):
                    return await attempt()
            except (KafkaError, TimeoutError, OSError) as error:
                reason = error if reason is None or not isinstance(error, TimeoutError) else reason
                if _is_final(error) or self._clock.now_ms() >= deadline_ms:
                    raise self.error_of(what, reason) from error
                self._error_log.warning("waiting for the source", source=self._source, doing=what, error=repr(error))
            await self._wait(min(backoff.next_ms(), max(1, deadline_ms - self._clock.now_ms())))

    async def _wait(self, limit_ms: int) -> None:
        """Wait before the next attempt. The wait ends early if the limit is lowered."""
        if self._limit_lowered.is_set():
            await self._clock.sleep_ms(min(limit_ms, INITIAL_BACKOFF_MS))
        else:
            await wait_at_most(self._limit_lowered, limit_ms, self._clock)

    def error_of(self, what: str, error: Exception) -> TidelakeError:
        if isinstance(error, LoginRefused):
            return BadInput(f"{self._source}: could not {what}: {error}")
        if (tls := _tls_error(error)) is not None:
            return BadInput(f"{self._source}: could not {what}: TLS failed: {tls}. {_tls_remedy(tls)}")
        if _is_final(error):
            return BadInput(
                f"{self._source} refused to {what}: {error!r}. Check topics, security settings and access rights"
            )
        return SourceUnavailable(f"{self._source}: could not {what}: {error!r}. {self._remedy}")


def _is_final(error: Exception) -> bool:
    """Return whether an attempt fails again if it is repeated."""
    return (isinstance(error, KafkaError) and not error.retriable) or _tls_error(error) is not None


def _tls_error(error: Exception) -> ssl.SSLError | None:
    """Return the error of TLS by which a connection failed, if a certificate or the protocol is wrong. None otherwise.

    A broker refuses a client's certificate only after the handshake; then aiokafka's error has the cause.
    """
    found = error.__cause__ if isinstance(error, KafkaConnectionError) else error
    broken = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)
    return found if isinstance(found, ssl.SSLError) and not isinstance(found, broken) else None


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        if "match" in str(error):
            return "Name brokers as in their certificates, or set `source.ssl_check_hostname` to false"
        return "Set `source.ssl_cafile` to the authorities that signed the brokers' certificates"
    if "ALERT" in str(error):
        return "Set `source.ssl_certfile` and `source.ssl_keyfile` to a certificate that the brokers accept"
    return "Check that this port of the brokers speaks TLS, or set `source.security_protocol` to one without SSL"
