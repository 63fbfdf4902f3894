"""Credentials as AWS gives them, and their renewal while a service runs."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.credentials import SSOProvider
from botocore.tokens import SSOTokenProvider

from tests.support.aws_logins import EXTERNAL_ID, SSO_TOKEN, WEB_IDENTITY, AwsLogins, aws_logins
from tests.support.certificates import Certificates, make_certificates
from tidelake.errors import AccessDenied, BadInput, UnsupportedFeature
from tidelake.storage.fileio import open_file_io
from tidelake.storage.fileio.aws_credentials import AwsCredentials, AwsLogin

LIFETIME_S = 2.0
ROLE = "arn:aws:iam::123456789012:role/lake"


@pytest.fixture(autouse=True)
def no_other_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def logins(certificates: Certificates, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsLogins]:
    """The server, behind a certificate of the company's own authority: the client shows no web identity without TLS."""
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificates.ca))
    with aws_logins(LIFETIME_S, certificates) as server:
        yield server


@dataclass(frozen=True)
class Login:
    id: str
    prepare: Callable[[AwsLogins, Path, pytest.MonkeyPatch], dict[str, str]]
    service: str  # that gives the credentials


KEYS = {"s3.access-key": "key", "s3.secret-key": "secret"}


def _role(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    return {
        **KEYS,
        "s3.assumed.role.arn": ROLE,
        "s3.assumed.role.external.id": EXTERNAL_ID,
        "s3.assumed.role.sts.endpoint": logins.address,
    }


def _web_identity(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    (folder / "token").write_text(WEB_IDENTITY)
    env.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(folder / "token"))
    env.setenv("AWS_ROLE_ARN", ROLE)
    env.setenv("AWS_ENDPOINT_URL_STS", logins.address)
    return {}


def _instance_role(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    env.setenv("AWS_METADATA_ENDPOINT", logins.address)
    return {}


def _container(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    (folder / "token").write_text(WEB_IDENTITY)
    env.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{logins.address}/container")
    env.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(folder / "token"))
    return {}


def _files(folder: Path, text: str) -> None:
    (folder / ".aws").mkdir()
    (folder / ".aws" / "config").write_text(text)
    (folder / ".aws" / "credentials").write_text("[base]\naws_access_key_id = key\naws_secret_access_key = secret\n")


def _profile(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    _files(folder, f"[profile lake]\nrole_arn = {ROLE}\nexternal_id = {EXTERNAL_ID}\nsource_profile = base\n")
    env.setenv("AWS_ENDPOINT_URL_STS", logins.address)
    env.setenv("AWS_PROFILE", "lake")
    return {}


def _profile_option(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    _profile(logins, folder, env)
    env.delenv("AWS_PROFILE")
    return {"s3.profile": "lake"}


def _default_profile(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    _files(folder, f"[default]\nrole_arn = {ROLE}\nexternal_id = {EXTERNAL_ID}\nsource_profile = base\n")
    env.setenv("AWS_ENDPOINT_URL_STS", logins.address)
    return {}


def _single_sign_on(logins: AwsLogins, folder: Path, env: pytest.MonkeyPatch) -> dict[str, str]:
    start = "https://company.awsapps.com/start"
    _files(
        folder,
        f"[profile lake]\nsso_session = company\nsso_account_id = 123456789012\nsso_role_name = reader\n"
        f"[sso-session company]\nsso_region = us-east-1\nsso_start_url = {start}\n",
    )
    for reader in (SSOProvider, SSOTokenProvider):  # botocore looked for the home directory when it was imported
        env.setattr(reader, "_SSO_TOKEN_CACHE_DIR", str(folder / ".aws" / "sso" / "cache"))
    cache = folder / ".aws" / "sso" / "cache" / f"{hashlib.sha1(b'company', usedforsecurity=False).hexdigest()}.json"
    cache.parent.mkdir(parents=True)
    until = (datetime.now(UTC) + timedelta(hours=8)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cache.write_text(json.dumps({"accessToken": SSO_TOKEN, "expiresAt": until, "startUrl": start}))
    env.setenv("AWS_ENDPOINT_URL_SSO", logins.address)
    env.setenv("AWS_PROFILE", "lake")
    return {}


LOGINS = [
    Login("a role with an external id", _role, "AssumeRole"),
    Login("a web identity, as in EKS", _web_identity, "AssumeRoleWithWebIdentity"),
    Login("the role of a machine", _instance_role, "instance role"),
    Login("the role of a container or a pod", _container, "container"),
    Login("a profile of the environment", _profile, "AssumeRole"),
    Login("a profile of the options", _profile_option, "AssumeRole"),
    Login("the default profile", _default_profile, "AssumeRole"),
    Login("single sign-on", _single_sign_on, "SSO"),
]


@pytest.mark.interop
@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.id)
def test_the_store_is_reached_with(
    login: Login, logins: AwsLogins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = open_file_io("s3://b", {**logins.options, **login.prepare(logins, tmp_path, monkeypatch)})
    io.write("s3://b/t/LATEST", b"7")
    assert io.read("s3://b/t/LATEST") == b"7"
    assert logins.given[login.service] >= 1
    assert logins.refused == 0


@pytest.mark.interop
@pytest.mark.exhaustive
@pytest.mark.parametrize("login", LOGINS, ids=lambda login: login.id)
def test_credentials_are_renewed_while_a_service_runs(
    login: Login, logins: AwsLogins, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    io = open_file_io("s3://b", {**logins.options, **login.prepare(logins, tmp_path, monkeypatch)})
    end_s = time.monotonic() + 2.5 * LIFETIME_S
    while time.monotonic() < end_s:
        io.write("s3://b/t/LATEST", b"7")
        time.sleep(0.1)
    assert logins.refused == 0
    assert logins.given[login.service] >= 2


# ---------------------------------------------------------------- when they are renewed


class Service:
    """Gives credentials of an hour, on a clock of its own."""

    def __init__(self, lifetime: timedelta | None = timedelta(hours=1)) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.lifetime = lifetime
        self.requests = 0
        self.is_away = False

    def request(self) -> Any:
        self.requests += 1
        if self.is_away:
            raise OSError("the token service is away")
        expires_at = None if self.lifetime is None else self.now + self.lifetime
        return {"access_key_id": f"key {self.requests}", "secret_access_key": "s", "expires_at": expires_at}


def test_credentials_are_requested_again_after_four_fifths_of_their_lifetime() -> None:
    service = Service()
    credentials = AwsCredentials(service.request, lambda: service.now)
    for minute in range(0, 240, 4):
        service.now = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
        expires_at = credentials()["expires_at"]
        assert expires_at is not None
        assert expires_at > service.now + timedelta(minutes=10)
    assert service.requests == 5


def test_old_credentials_serve_while_they_cannot_be_renewed() -> None:
    service = Service()
    credentials = AwsCredentials(service.request, lambda: service.now)
    credentials()
    service.is_away = True
    service.now += timedelta(minutes=55)
    assert credentials()["access_key_id"] == "key 1"
    service.now += timedelta(minutes=10)
    with pytest.raises(PermissionError, match="no credentials of AWS: the token service is away"):
        credentials()
    service.is_away = False
    assert credentials()["access_key_id"] == f"key {service.requests}"


def test_credentials_without_an_end_are_looked_for_again_now_and_then() -> None:
    service = Service(lifetime=None)
    credentials = AwsCredentials(service.request, lambda: service.now)
    credentials()
    service.now += timedelta(minutes=14)
    credentials()
    assert service.requests == 2


# ---------------------------------------------------------------- what is refused


def test_a_role_that_must_not_be_assumed_is_an_error_with_the_reason(logins: AwsLogins, tmp_path: Path) -> None:
    options = {
        **logins.options,
        **_role(logins, tmp_path, pytest.MonkeyPatch()),
        "s3.assumed.role.external.id": "wrong",
    }
    with pytest.raises(AccessDenied, match="not authorized to assume the role"):
        open_file_io("s3://b", options).read("s3://b/t/LATEST")


def test_an_unknown_profile_is_refused_by_name(logins: AwsLogins) -> None:
    with pytest.raises(
        BadInput, match=r"option s3\.profile = nobody: The config profile \(nobody\) could not be found"
    ):
        open_file_io("s3://b", {**logins.options, "s3.profile": "nobody"}).read("s3://b/f")


@pytest.mark.parametrize("name", ["external.id", "session.name", "session.duration"])
def test_a_role_must_be_named(logins: AwsLogins, name: str) -> None:
    with pytest.raises(BadInput, match=r"set s3\.assumed\.role\.arn"):
        open_file_io("s3://b", {**logins.options, f"s3.assumed.role.{name}": "900"}).read("s3://b/f")


def test_without_boto3_a_profile_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("boto3", "boto3.session"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    with pytest.raises(UnsupportedFeature, match=r"AWS_PROFILE = lake.*pip install 'tidelake\[aws\]'"):
        AwsLogin().provider()


def test_keys_and_variables_of_keys_need_no_boto3(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    assert AwsLogin(access_key="key", secret_key="secret").provider() is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    assert AwsLogin().provider() is None


# ---------------------------------------------------------------- the network of a company


def test_an_authority_of_the_company_is_an_option(
    logins: AwsLogins, certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_CA_BUNDLE")
    logins.checks_tokens = False
    io = open_file_io("s3://b", {**logins.options, **KEYS, "s3.ca.bundle": str(certificates.ca)})
    io.write("s3://b/t/LATEST", b"7")
    assert io.read("s3://b/t/LATEST") == b"7"


@pytest.mark.parametrize("account", [{}, {"s3.proxy.username": "me", "s3.proxy.password": "p@ss"}], ids=["", "account"])
def test_a_proxy_is_an_option(account: dict[str, str]) -> None:
    with aws_logins(LIFETIME_S) as proxy:
        proxy.checks_tokens = False
        host, port = proxy.address.removeprefix("http://").split(":")
        options = {
            **KEYS,
            "s3.endpoint": "http://store.invalid",
            "s3.proxy.host": host,
            "s3.proxy.port": port,
            **account,
        }
        io = open_file_io("s3://b", options)
        io.write("s3://b/t/LATEST", b"7")
        assert proxy.headers["host"] == "store.invalid"
        expected = "Basic " + b64encode(b"me:p@ss").decode() if account else None
        assert proxy.headers.get("proxy-authorization") == expected


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with aws_logins(LIFETIME_S) as proxy:
        proxy.checks_tokens = False
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        monkeypatch.setenv("http_proxy", proxy.address)
        io = open_file_io("s3://b", {**KEYS, "s3.endpoint": "http://store-of-this-test.invalid"})
        io.write("s3://b/t/LATEST", b"7")
        assert proxy.headers["host"] == "store-of-this-test.invalid"


@pytest.mark.parametrize(
    ("options", "headers"),
    [
        (
            {"s3.encryption.algorithm": "SSE-KMS", "s3.encryption.key": "arn:aws:kms:us-east-1:1:key/a"},
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "arn:aws:kms:us-east-1:1:key/a",
            },
        ),
        ({"s3.encryption.algorithm": "SSE-S3"}, {"x-amz-server-side-encryption": "AES256"}),
        ({"s3.requester.pays.enabled": "true"}, {"x-amz-request-payer": "requester"}),
    ],
    ids=["SSE-KMS", "SSE-S3", "requester pays"],
)
def test_each_object_is_put_with(options: dict[str, str], headers: dict[str, str]) -> None:
    with aws_logins(LIFETIME_S) as store:
        store.checks_tokens = False
        io = open_file_io("s3://b", {**store.options, **KEYS, **options})
        io.write("s3://b/t/LATEST", b"7")
        assert headers.items() <= store.headers.items()
        with io.open_output("s3://b/t/data-1.parquet") as output:
            output.stream.write(b"rows")
        assert headers.items() <= store.headers.items()
