"""Certificates for one test run: an authority, a server on 127.0.0.1 and a client, as PEM files, made by openssl."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

PASSWORD = "hunter2"
"""The password of the client's encrypted key, and of key stores."""

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


@dataclass(frozen=True)
class Certificates:
    """The files of a folder.

    ca, server, server_key, client, client_key: PEM files.
    locked_key: the client's key, encrypted with PASSWORD.
    stranger, stranger_key: a client's certificate of another authority.
    """

    folder: Path

    def __getattr__(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def chain(self, who: str) -> Path:
        """Return a PEM file with the key and the certificate, as brokers read it."""
        path = self.folder / f"{who}-chain.pem"
        path.write_text((self.folder / f"{who}_key.pem").read_text() + (self.folder / f"{who}.pem").read_text())
        return path

    def pkcs12(self, who: str = "client") -> Path:
        """Return a PKCS12 key store with the key and the certificate, locked with PASSWORD."""
        store = self.folder / f"{who}.p12"
        files = ("-inkey", f"{who}_key.pem", "-in", f"{who}.pem", "-certfile", "ca.pem", "-out", store.name)
        self.openssl("pkcs12", "-export", *files, "-name", who, "-passout", f"pass:{PASSWORD}")
        return store

    def openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)


def make_certificates(folder: Path) -> Certificates:
    """Make the files. It takes a few tenths of a second."""
    files = Certificates(folder)
    for authority, name in (("ca", "Tidelake tests"), ("stranger", "A stranger")):
        key = "ca_key.pem" if authority == "ca" else "stranger_key.pem"
        made = ("-keyout", key, "-out", f"{authority}.pem", "-subj", f"/CN={name}")
        files.openssl("req", "-x509", *_NEW_KEY, "-nodes", "-days", "2", *made)
    (folder / "names.cnf").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for who in ("server", "client"):
        asked = ("-keyout", f"{who}_key.pem", "-out", f"{who}.csr", "-subj", f"/CN={who}")
        files.openssl("req", "-new", *_NEW_KEY, "-nodes", *asked)
        signed = ("-in", f"{who}.csr", "-out", f"{who}.pem", "-CA", "ca.pem", "-CAkey", "ca_key.pem")
        files.openssl("x509", "-req", "-days", "2", *signed, "-CAcreateserial", "-extfile", "names.cnf")
    locked = ("-in", "client_key.pem", "-out", "locked_key.pem", "-passout", f"pass:{PASSWORD}")
    files.openssl("pkey", "-aes256", *locked)
    return files
