"""The services that give AWS's credentials, and a bucket that believes only the valid ones, in one small server."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.certificates import Certificates

EXTERNAL_ID = "agreed-upon"
WEB_IDENTITY = "signed by the cluster"
SSO_TOKEN = "after a login in the browser"
_NOT_FOUND, _FORBIDDEN = 404, 403


class AwsLogins:
    """A running server.

    lifetime_s: of the credentials that it gives.
    given: how many credentials each service gave.
    refused: how many requests to the bucket had no valid credentials.
    headers: of the last request to the bucket.
    checks_tokens: whether the bucket wants valid credentials.
    is_away: whether the services refuse for now.
    """

    def __init__(self, lifetime_s: float) -> None:
        self.lifetime_s = lifetime_s
        self.given: Counter[str] = Counter()
        self.refused = 0
        self.headers: dict[str, str] = {}
        self.is_away = False
        self.checks_tokens = True
        self.address = ""
        self._valid_until: dict[str, float] = {}
        self._objects: dict[str, bytes] = {}
        self._lock = threading.Lock()

    @property
    def options(self) -> dict[str, str]:
        return {"s3.endpoint": self.address, "s3.region": "us-east-1"}

    def new_token(self, service: str) -> tuple[str, str]:
        """Return a token, and when it expires."""
        with self._lock:
            self.given[service] += 1
            token = f"{service}-{self.given[service]}"
            until = time.time() + self.lifetime_s
            self._valid_until[token] = until
        return token, datetime.fromtimestamp(until, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def bucket(self, method: str, key: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        with self._lock:
            self.headers = headers
            if self.checks_tokens and self._valid_until.get(headers.get("x-amz-security-token", ""), 0) < time.time():
                self.refused += 1
                return _FORBIDDEN, b"<Error><Code>ExpiredToken</Code><Message>the token has expired</Message></Error>"
            if method == "PUT":
                self._objects[key] = body
                return 200, b""
            return (200, self._objects[key]) if key in self._objects else (_NOT_FOUND, b"")

    # ------------------------------------------------------------ the services

    def token_service(self, form: dict[str, list[str]]) -> tuple[int, bytes]:
        action = form["Action"][0]
        allowed = {
            "AssumeRole": form.get("ExternalId") == [EXTERNAL_ID],
            "AssumeRoleWithWebIdentity": form.get("WebIdentityToken") == [WEB_IDENTITY],
        }
        if self.is_away or not allowed.get(action, False):
            return _FORBIDDEN, (
                b"<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code>"
                b"<Message>not authorized to assume the role</Message></Error></ErrorResponse>"
            )
        token, until = self.new_token(action)
        return 200, (
            f'<{action}Response xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><{action}Result><Credentials>'
            f"<AccessKeyId>key</AccessKeyId><SecretAccessKey>secret</SecretAccessKey><SessionToken>{token}</SessionToken>"
            f"<Expiration>{until}</Expiration></Credentials></{action}Result></{action}Response>"
        ).encode()

    def document(self, service: str) -> bytes:
        """Return credentials as a machine, or a container's agent, gives them."""
        token, until = self.new_token(service)
        found = {"AccessKeyId": "key", "SecretAccessKey": "secret", "Token": token, "Expiration": until}
        return json.dumps(
            {**found, "Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
        ).encode()

    def single_sign_on(self) -> bytes:
        token, _ = self.new_token("SSO")
        until_ms = int(1000 * (time.time() + self.lifetime_s))
        found = {"accessKeyId": "key", "secretAccessKey": "secret", "sessionToken": token, "expiration": until_ms}
        return json.dumps({"roleCredentials": found}).encode()


@contextmanager
def aws_logins(lifetime_s: float, certificates: Certificates | None = None) -> Iterator[AwsLogins]:
    """Run the server, with TLS if there are certificates."""
    logins = AwsLogins(lifetime_s)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            path = urlsplit(self.path).path
            status, content = 200, b""
            if path == "/" and self.command == "POST":
                status, content = logins.token_service(parse_qs(body.decode()))
            elif path == "/latest/api/token":
                content = b"session"
            elif path == "/latest/meta-data/iam/security-credentials/":
                content = b"role-of-the-machine"
            elif path.startswith("/latest/meta-data/iam/security-credentials/"):
                content = logins.document("instance role")
            elif path == "/container":
                is_allowed = self.headers.get("Authorization") == WEB_IDENTITY
                status, content = (200, logins.document("container")) if is_allowed else (_FORBIDDEN, b"")
            elif path == "/federation/credentials":
                is_allowed = self.headers.get("x-amz-sso_bearer_token") == SSO_TOKEN
                status, content = (200, logins.single_sign_on()) if is_allowed else (_FORBIDDEN, b"{}")
            else:
                headers = {name.lower(): value for name, value in self.headers.items()}
                status, content = logins.bucket(self.command, path, body, headers)
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", '"1"')
            self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _answer  # names of http.server

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificates is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificates.server, certificates.server_key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    logins.address = f"{'http' if certificates is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield logins
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
