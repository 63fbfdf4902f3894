"""TLS for clients: builds the context from PEM files, and explains files that can't be used.

A Java key store is recognized by its first bytes. Its error has the command that converts it to PEM.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidelake.errors import BadInput
from tidelake.ingest.secrets import Secret

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
_SEQUENCE: Final = 0x30
_VERSION_3: Final = b"\x02\x01\x03"  # the first element of a PKCS12 store; a certificate in DER begins with a sequence


@dataclass(frozen=True, slots=True)
class TlsNames:
    """The names of the settings in messages."""

    cafile: str
    certfile: str
    keyfile: str
    password: str


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of a client.

    cafile: trusted authorities; None for those of the system.
    certfile: the client's certificate; it may contain the key, too.
    password: of the key.
    """

    cafile: Path | None = None
    certfile: Path | None = None
    keyfile: Path | None = None
    password: Secret | None = None


def client_context(files: TlsFiles, names: TlsNames) -> ssl.SSLContext:
    """Return the context. It reads the files, so it blocks.

    Raises BadInput for unusable files, with their names, which OpenSSL's errors lack.
    """
    for path, name in ((files.cafile, names.cafile), (files.certfile, names.certfile), (files.keyfile, names.keyfile)):
        _check_readable(path, name, is_truststore=path is files.cafile)
    try:
        context = ssl.create_default_context(cafile=files.cafile)
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(
            f"{names.cafile}: {files.cafile} can't be used: {error}. Point it at a PEM file of CA certificates"
        ) from error
    if files.certfile is not None:
        # Never None: then OpenSSL would ask for the key's password on the terminal, and wait.
        password = "" if files.password is None else files.password.reveal()
        try:
            context.load_cert_chain(files.certfile, files.keyfile, password)
        except (ssl.SSLError, ValueError) as error:
            used = f"{files.certfile}" + (f", {files.keyfile}" if files.keyfile else "")
            raise BadInput(
                f"{names.certfile}, {names.keyfile}: {used} can't be used: {error}. Give the client's certificate and "
                f"its key, as PEM, and {names.password} for a key that is encrypted"
            ) from error
    return context


def _check_readable(path: Path | None, name: str, is_truststore: bool) -> None:
    if path is None:
        return
    try:
        begin = path.read_bytes()[:16]
    except OSError as error:
        raise BadInput(f"{name}: can't read {path}: {error.strerror}. Use a PEM file") from error
    kind = _store_kind(begin)
    if kind is not None:
        raise BadInput(
            f"{name}: {path} is a {kind} key store of Java, not a PEM file. "
            f"{conversion(path, kind, is_truststore, name)}"
        )


def _store_kind(begin: bytes) -> str | None:
    """Return `JKS` or `PKCS12` for a key store that begins like this; None for another file."""
    if begin.startswith(_JKS_MAGIC):
        return "JKS"
    if len(begin) < 2 or begin[0] != _SEQUENCE:
        return None
    length_bytes = begin[1] & 0x7F if begin[1] & 0x80 else 0
    return "PKCS12" if begin[2 + length_bytes :].startswith(_VERSION_3) else None


def conversion(path: Path, kind: str, is_truststore: bool, name: str) -> str:
    """Return the remedy for a key store: the commands that convert it, and the settings of their result.

    kind: `JKS` or `PKCS12`.
    name: the setting.
    """
    store, pem = path, path.with_suffix(".pem")
    if is_truststore:
        command = (
            f"openssl pkcs12 -in {store} -nokeys -out {pem}"
            if kind == "PKCS12"
            else f"keytool -list -rfc -keystore {store} > {pem}"
        )
        return f"Convert it with `{command}`, and set {name} to {pem}"
    first = ""
    if kind == "JKS":
        store = path.with_suffix(".p12")
        first = f"keytool -importkeystore -srckeystore {path} -destkeystore {store} -deststoretype PKCS12 && "
    return (
        f"Convert it with `{first}openssl pkcs12 -in {store} -out {pem}`, which asks for a password for the key. "
        f"Set {name} to {pem}, which then has the certificate and the key, and give this password"
    )
