"""Tokens for Amazon MSK are signed with the credentials that AWS's tools find; without any, the error says so."""

from __future__ import annotations

import base64
import time
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tidelake.errors import BadInput
from tidelake.ingest.access_tokens import TokenUnavailable
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka.connection import client_arguments
from tidelake.ingest.sources.kafka.login import TokenLogin
from tidelake.ingest.sources.kafka.msk_iam import MskIamSigner

BROKER = "b-1.shop.abc123.c2.kafka.eu-central-1.amazonaws.com:9098"


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hide the credentials of this machine. Returns the file of profiles."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path / "credentials"


def signed_by(token: str) -> str:
    """Return the id of the key that signed a token."""
    url = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()
    assert urlsplit(url).hostname == "kafka.eu-central-1.amazonaws.com"
    return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]


def test_a_token_is_signed_with_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDENV")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cret")
    token = MskIamSigner("eu-central-1").request()
    assert signed_by(token.value.reveal()) == "AKIDENV"
    assert 800 < token.expires_s - time.monotonic() < 901


def test_a_token_is_signed_with_the_credentials_of_a_profile(no_credentials: Path) -> None:
    no_credentials.write_text("[etl]\naws_access_key_id = AKIDFILE\naws_secret_access_key = s3cret\n")
    assert signed_by(MskIamSigner("eu-central-1", profile="etl").request().value.reveal()) == "AKIDFILE"


@pytest.mark.parametrize(
    ("profile", "reason"), [(None, "no credentials were found"), ("nobody", "ProfileNotFound: .*nobody")]
)
def test_missing_credentials_are_reported_with_the_ways_to_give_them(profile: str | None, reason: str) -> None:
    message = rf"no token for Amazon MSK could be signed: {reason}.*Give this process credentials of AWS .*aws_profile"
    with pytest.raises(TokenUnavailable, match=message) as raised:
        MskIamSigner("eu-central-1", profile=profile).request()
    assert raised.value.is_final


def msk(**more: str) -> KafkaSettings:
    given = {"bootstrap_servers": BROKER, "security_protocol": "SASL_SSL", **more}
    return KafkaSettings(topics="t", sasl_mechanism="AWS_MSK_IAM", **given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "region"),
    [
        (BROKER, "eu-central-1"),
        ("boot-abc.c3.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("kafka.internal:9098", None),
    ],
)
def test_the_region_is_that_of_the_brokers(server: str, region: str | None) -> None:
    assert msk(bootstrap_servers=server).msk_region == region
    assert msk(bootstrap_servers=server, aws_region="eu-west-1").msk_region == "eu-west-1"


def test_the_client_logs_in_with_tokens() -> None:
    arguments = client_arguments(msk())
    assert arguments["sasl_mechanism"] == "OAUTHBEARER"
    assert isinstance(arguments["sasl_oauth_token_provider"], TokenLogin)


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(BadInput, match=r"AWS_MSK_IAM needs the package .*pip install 'tidelake\[msk\]'"):
        client_arguments(msk())
