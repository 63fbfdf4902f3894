"""A token endpoint (OAuth 2.0, client credentials) whose tokens a real broker accepts; with injected failures."""

from __future__ import annotations

import base64
import json
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, unquote_plus

ISSUER = "https://login.test"
AUDIENCE = "kafka"
CLIENT_ID = "pipeline+1"  # a plus sign: names are form-encoded, also inside of the Authorization header
CLIENT_SECRET = "s3cr3t&%:+"


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class SigningKey:
    """An RSA key in a folder. It signs tokens; `jwks` is the file in which a broker finds its public part."""

    def __init__(self, folder: Path) -> None:
        self._key = folder / "tokens.pem"
        self.jwks = folder / "jwks.json"
        made = ["openssl", "genrsa", "-out", str(self._key), "2048"]
        subprocess.run(made, check=True, capture_output=True)
        shown = ["openssl", "rsa", "-in", str(self._key), "-noout", "-modulus"]
        modulus = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]
        key = {"kty": "RSA", "kid": "k1", "alg": "RS256", "use": "sig", "n": _base64url(bytes.fromhex(modulus))}
        self.jwks.write_text(json.dumps({"keys": [{**key, "e": "AQAB"}]}), encoding="utf-8")

    def token(self, **claims: Any) -> str:
        head = _base64url(json.dumps({"alg": "RS256", "kid": "k1", "typ": "JWT"}).encode())
        signed = f"{head}.{_base64url(json.dumps(claims).encode())}"
        sign = ["openssl", "dgst", "-sha256", "-sign", str(self._key)]
        signature = subprocess.run(sign, input=signed.encode(), capture_output=True, check=True).stdout
        return f"{signed}.{_base64url(signature)}"


@dataclass
class TokenEndpoint:
    """lifetime_s: of its tokens, from now + skew_s. issued: the tokens, in order. requests: bodies, in order.

    answers: (status, body) of the next requests, instead of tokens. scope: what a client may ask for.
    """

    key: SigningKey | None = None
    lifetime_s: float = 3_600
    skew_s: float = 0
    audience: str = AUDIENCE
    scope: str = "records.read"
    secret: str = CLIENT_SECRET
    issued: list[str] = field(default_factory=list)
    requests: list[dict[str, str]] = field(default_factory=list)
    answers: list[tuple[int, str]] = field(default_factory=list)
    down: bool = False
    url: str = ""

    def answer(self, form: dict[str, str], authorization: str) -> tuple[int, str]:
        self.requests.append(form)
        if self.answers:
            return self.answers.pop(0)
        if form.get("grant_type") != "client_credentials":
            return 400, json.dumps({"error": "unsupported_grant_type"})
        user, _, secret = base64.b64decode(authorization.removeprefix("Basic ")).decode().partition(":")
        if (unquote_plus(user), unquote_plus(secret)) != (CLIENT_ID, self.secret):
            return 401, json.dumps({"error": "invalid_client", "error_description": "the secret has expired"})
        if form.get("scope", self.scope) != self.scope:
            return 400, json.dumps({"error": "invalid_scope"})
        now = time.time() + self.skew_s
        claims = {"sub": user, "iss": ISSUER, "aud": self.audience, "scope": form.get("scope", self.scope)}
        token = (
            self.key.token(**claims, iat=int(now), exp=int(now + self.lifetime_s), jti=str(len(self.issued)))
            if self.key
            else f"token-{len(self.issued)}"
        )
        self.issued.append(token)
        return 200, json.dumps({"access_token": token, "token_type": "Bearer", "expires_in": self.lifetime_s})


@contextmanager
def token_endpoint(key: SigningKey | None = None, tls: ssl.SSLContext | None = None) -> Iterator[TokenEndpoint]:
    """key: signs the tokens; without one they are opaque words."""
    endpoint = TokenEndpoint(key)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if endpoint.down:
                self.connection.close()
                return
            form = {name: values[0] for name, values in parse_qs(body).items()}
            status, text = endpoint.answer(form, self.headers.get("Authorization", ""))
            self.send_response(status)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        endpoint.url = f"{'https' if tls else 'http'}://127.0.0.1:{server.server_port}/token"
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            thread.join()
