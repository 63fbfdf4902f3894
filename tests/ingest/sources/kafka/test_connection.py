"""Files and packages that a client needs are named if they are missing."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.certificates import PASSWORD, make_certificates
from tidelake.errors import BadInput
from tidelake.ingest.secrets import Secret
from tidelake.ingest.source_settings import KafkaSettings
from tidelake.ingest.sources.kafka import connection
from tidelake.ingest.sources.kafka.connection import client_arguments


def settings(**more: Any) -> KafkaSettings:
    return KafkaSettings(bootstrap_servers="kafka:9092", topics="t", security_protocol="SSL", **more)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate, its key, the key encrypted with a password, another key, and a text."""
    folder = tmp_path_factory.mktemp("pem")
    new_key = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=etl", "-nodes"]
    for name in ("own", "other"):
        made = [*new_key, "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        subprocess.run(made, cwd=folder, check=True, capture_output=True)
    encrypt = ["openssl", "rsa", "-aes256", "-passout", "pass:hunter2", "-in", "own.key", "-out", "locked.key"]
    subprocess.run(encrypt, cwd=folder, check=True, capture_output=True)
    (folder / "text").write_text("no certificate")
    return folder


@dataclass(frozen=True)
class Case:
    """files: path by setting. message: part of the error message."""

    id: str
    files: dict[str, str]
    message: str
    password: Secret | None = None


CASES = (
    Case("no such file", {"ssl_cafile": "nope.pem"}, r"`source.ssl_cafile`: can't read .*nope.pem: No such file"),
    Case("a folder", {"ssl_certfile": "."}, r"`source.ssl_certfile`: can't read .*: Is a directory"),
    Case("no certificates", {"ssl_cafile": "text"}, r"`source.ssl_cafile`: .*text can't be used: .*PEM file of CA"),
    Case(
        "the key of another certificate",
        {"ssl_certfile": "own.pem", "ssl_keyfile": "other.key"},
        r"`source.ssl_certfile`, `source.ssl_keyfile`: .*own.pem, .*other.key can't be used: .*MISMATCH",
    ),
    Case("a certificate without a key", {"ssl_certfile": "own.pem"}, r"own.pem can't be used: .*and its key, as PEM"),
    Case(
        "a key whose password nobody gave",  # no prompt asks for it: a service has no terminal
        {"ssl_certfile": "own.pem", "ssl_keyfile": "locked.key"},
        r"locked.key can't be used: .*`source.ssl_password` for a key that is encrypted",
    ),
    Case(
        "another password",
        {"ssl_certfile": "own.pem", "ssl_keyfile": "locked.key"},
        r"locked.key can't be used: ",
        Secret("hunter3"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_a_file_that_can_t_be_used_is_named_with_its_setting(case: Case, files: Path) -> None:
    given = {name: files / file for name, file in case.files.items()}
    with pytest.raises(BadInput, match=case.message) as raised:
        client_arguments(settings(**given, ssl_password=case.password))
    assert "hunter" not in str(raised.value)


@pytest.mark.parametrize(("key", "password"), [("own.key", None), ("own.key", "hunter3"), ("locked.key", "hunter2")])
def test_a_certificate_with_its_key_is_taken(files: Path, key: str, password: str | None) -> None:
    own = settings(ssl_cafile=files / "own.pem", ssl_certfile=files / "own.pem", ssl_keyfile=files / key)
    given = msgspec.structs.replace(own, ssl_password=None if password is None else Secret(password))
    context = client_arguments(given)["ssl_context"]
    assert context.check_hostname
    assert [one["subject"] for one in context.get_ca_certs()] == [((("commonName", "etl"),),)]


@dataclass(frozen=True)
class Store:
    """A key store of Java, and the commands of the remedy, which are executed with the password of the store."""

    id: str
    setting: str
    make: tuple[str, ...]


_JAVA = ("keytool", "-storepass", PASSWORD, "-noprompt", "-keystore")
_IMPORT = ("keytool", "-importkeystore", "-srckeystore", "client.p12", "-srcstorepass", PASSWORD, "-deststoretype")
STORES = (
    Store("client.p12", "ssl_certfile", ()),
    Store("client.jks", "ssl_certfile", (*_IMPORT, "JKS", "-destkeystore", "client.jks", "-deststorepass", PASSWORD)),
    Store("trust.p12", "ssl_cafile", (*_JAVA, "trust.p12", "-importcert", "-file", "ca.pem", "-storetype", "PKCS12")),
    Store("trust.jks", "ssl_cafile", (*_JAVA, "trust.jks", "-importcert", "-file", "ca.pem", "-storetype", "JKS")),
)


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.id)
def test_a_java_key_store_is_refused_with_the_commands_that_convert_it(tmp_path: Path, store: Store) -> None:
    own = make_certificates(tmp_path)
    own.pkcs12()
    if store.make:
        subprocess.run(store.make, cwd=tmp_path, check=True, capture_output=True)
    path = tmp_path / store.id
    with pytest.raises(BadInput, match=rf"`source.{store.setting}`: .* is a (JKS|PKCS12) key store of Java") as raised:
        client_arguments(settings(**{store.setting: path}))
    command = str(raised.value).split("`")[3]
    passwords = {
        "openssl pkcs12": f"-passin pass:{PASSWORD}" + ("" if "-nokeys" in command else f" -passout pass:{PASSWORD}")
    }
    passwords["keytool -list"] = f"-storepass {PASSWORD}"
    passwords["keytool -importkeystore"] = f"-srcstorepass {PASSWORD} -deststorepass {PASSWORD} -noprompt"
    for program, given in passwords.items():
        command = command.replace(program, f"{program} {given}")
    path.with_suffix(".p12").unlink() if store.id == "client.jks" else None
    subprocess.run(command, shell=True, check=True, capture_output=True)
    pem = path.with_suffix(".pem")
    assert f"{pem}" in str(raised.value)
    client_arguments(settings(**{store.setting: pem}, ssl_password=Secret(PASSWORD)))


def test_kerberos_without_its_package_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "find_spec", lambda name: None)
    asked = KafkaSettings(
        bootstrap_servers="kafka:9092", topics="t", security_protocol="SASL_PLAINTEXT", sasl_mechanism="GSSAPI"
    )
    with pytest.raises(BadInput, match="GSSAPI needs the package gssapi: pip install gssapi"):
        client_arguments(asked)
