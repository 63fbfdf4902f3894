"""Credentials of AWS that the store's client doesn't find itself: profiles, SSO, and roles that are assumed.

boto3 finds them as all of AWS's tools do, and renews those of profiles. The client asks for credentials before each
request once they are valid for less than five minutes, so they are kept here, and renewed after four fifths of their
lifetime. If they can't be renewed, the old ones are used while they are valid.

Source: Hadoop's names `fs.s3a.assumed.role.*`; AWS's variables.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env
from tidelake.storage.base.logs import get_logger

if TYPE_CHECKING:
    from obstore.store import S3Credential

_REFRESH_SHARE: Final = 0.8  # of the lifetime
_UNKNOWN_LIFETIME: Final = timedelta(minutes=15)  # of credentials without an end: a file may get others
_SESSION_NAME: Final = "tidelake"
_CONTAINER_VARIABLES: Final = ("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI")
_FILES: Final = {"AWS_SHARED_CREDENTIALS_FILE": "~/.aws/credentials", "AWS_CONFIG_FILE": "~/.aws/config"}

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AwsLogin:
    """What the options say about the credentials.

    access_key, secret_key, session_token: given credentials, with which the role is assumed.
    profile: a profile in the files of AWS.
    role_arn: the role to assume with the credentials that are found otherwise.
    external_id: what the owner of the role demands.
    session_name: of the role's session, which AWS logs.
    duration_s: lifetime of the role's credentials; None is AWS's default of an hour.
    region: for the token service; None is that of the profile.
    sts_endpoint: address of the token service.
    ca_bundle: a file with the authority that signed the token service's certificate, or that of a proxy before it.
    """

    access_key: str | None = None
    secret_key: str | None = None
    session_token: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None
    session_name: str | None = None
    duration_s: int | None = None
    region: str | None = None
    sts_endpoint: str | None = None
    ca_bundle: str | None = None

    def provider(self) -> AwsCredentials | None:
        """Return what asks for credentials; None if the client finds them itself.

        Raises BadInput for a profile that doesn't exist, UnsupportedFeature if boto3 is missing.
        """
        if self.role_arn is None and (self.external_id or self.session_name or self.duration_s):
            raise BadInput("options s3.assumed.role.*: the role is missing; set s3.assumed.role.arn")
        if self.role_arn is None and self.access_key is not None:
            return None
        wanted = self._reason()
        if wanted is None:
            return None
        try:
            import boto3.session  # noqa: PLC0415  # it takes 20 MiB and 0.2 s
            import botocore.session  # noqa: PLC0415
            from botocore.exceptions import BotoCoreError  # noqa: PLC0415
        except ImportError:
            if wanted in _FILES.values():
                return None  # perhaps the machine has a role
            raise UnsupportedFeature(
                wanted, "boto3 is not installed, which finds such credentials", "pip install 'tidelake[aws]'"
            ) from None
        try:
            settings = botocore.session.Session()
            settings.set_config_variable("ca_bundle", self.ca_bundle)
            session = boto3.session.Session(
                self.access_key, self.secret_key, self.session_token, self.region, settings, self.profile
            )
            found = session.get_credentials()
        except BotoCoreError as error:
            raise BadInput(f"{wanted}: {error}") from None
        if found is None:
            if wanted in _FILES.values():
                return None
            raise BadInput(f"{wanted}: it has no credentials, and none were found elsewhere")
        return AwsCredentials((lambda: self._assumed(session)) if self.role_arn else (lambda: _frozen(found)))

    def _reason(self) -> str | None:
        """Return what makes boto3 necessary, for messages; None if nothing does."""
        if self.role_arn is not None:
            return f"option s3.assumed.role.arn = {self.role_arn}"
        if self.profile is not None:
            return f"option s3.profile = {self.profile}"
        if os.environ.get("AWS_ACCESS_KEY_ID"):
            return None
        if path := os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"):
            # The client shows web identities only to a token service with a public certificate.
            return None if self.ca_bundle is None else f"environment variable AWS_WEB_IDENTITY_TOKEN_FILE = {path}"
        if os.environ.get("AWS_PROFILE"):
            return f"environment variable AWS_PROFILE = {os.environ['AWS_PROFILE']}"
        if any(os.environ.get(name) for name in _CONTAINER_VARIABLES):
            return None
        files = {name: Path(os.environ.get(name, default)).expanduser() for name, default in _FILES.items()}
        return next((_FILES[name] for name, path in files.items() if path.is_file()), None)

    def _assumed(self, session: Any) -> S3Credential:
        wanted = {
            "RoleArn": self.role_arn,
            "RoleSessionName": self.session_name or _SESSION_NAME,
            "ExternalId": self.external_id,
            "DurationSeconds": self.duration_s,
        }
        client = session.client("sts", endpoint_url=self.sts_endpoint)
        given = client.assume_role(**{name: value for name, value in wanted.items() if value is not None})
        found = given["Credentials"]
        return {
            "access_key_id": found["AccessKeyId"],
            "secret_access_key": found["SecretAccessKey"],
            "token": found["SessionToken"],
            "expires_at": found["Expiration"].astimezone(UTC),  # the client takes no other zone
        }


def _frozen(credentials: Any) -> S3Credential:
    frozen = credentials.get_frozen_credentials()  # boto3 renews them if they expire soon
    expires_at = getattr(credentials, "_expiry_time", None) or env.local_now(UTC) + _UNKNOWN_LIFETIME
    return {
        "access_key_id": frozen.access_key,
        "secret_access_key": frozen.secret_key,
        "token": frozen.token,
        "expires_at": expires_at.astimezone(UTC),
    }


class AwsCredentials:
    """The credentials, for the store's client. It is called from its threads.

    request: asks for new ones.
    now: the current time.
    """

    def __init__(
        self, request: Callable[[], S3Credential], now: Callable[[], datetime] = lambda: env.local_now(UTC)
    ) -> None:
        self._request = request
        self._now = now
        self._lock = env.Lock()
        self._given: S3Credential | None = None
        self._refresh_at = datetime.min.replace(tzinfo=UTC)

    def __call__(self) -> S3Credential:
        """Return valid credentials. Raises the error of the request if there are none."""
        with self._lock:
            now = self._now()
            if self._given is None or now >= self._refresh_at:
                try:
                    self._given = self._request()
                except Exception as error:
                    expires_at = self._given["expires_at"] if self._given is not None else None
                    if self._given is None or expires_at is None or now >= expires_at:
                        raise PermissionError(f"no credentials of AWS: {error}") from error
                    _log.warning("credentials are not renewed yet", why=str(error), valid_until=str(expires_at))
                else:
                    expires_at = self._given["expires_at"]
                    lifetime = _UNKNOWN_LIFETIME if expires_at is None else expires_at - now
                    self._refresh_at = now + lifetime * _REFRESH_SHARE
            return self._given
