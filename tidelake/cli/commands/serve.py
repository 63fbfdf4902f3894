"""`tidelake serve rest`: serves a warehouse to clients of Paimon's REST catalog."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tidelake.cli.arguments import CatalogAddress, Commands, add_warehouse, command
from tidelake.cli.exits import CommandRefused, UsageError
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    import ssl

_LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add_rest(verbs: Commands) -> None:
    parser = command(
        verbs,
        "rest",
        rest,
        "serve a warehouse to REST catalog clients of Java, Flink, Spark and pypaimon",
        "Commits of these clients and of Tidelake exclude each other without a lock. Clients read and write files "
        "themselves.\nCtrl-C or SIGTERM finishes the requests that are being answered, then ends.",
        log_level="info",
        is_service=True,
        example="tidelake serve rest -w lake --port 8080 --token-file tokens.txt",
    )
    add_warehouse(parser)
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1, this machine only"
    )
    parser.add_argument("--port", type=_port, default=10000, help="default: 10000; 0 chooses a free one")
    parser.add_argument("--token-file", metavar="FILE", help="a bearer token per line, each for all requests")
    parser.add_argument("--read-token-file", metavar="FILE", help="a bearer token per line, each for reads only")
    parser.add_argument("--allow-anonymous", action="store_true", help="serve other machines without tokens")
    parser.add_argument("--read-only", action="store_true", help="refuse every change")
    parser.add_argument(
        "--tls", nargs=2, metavar=("CERTIFICATE", "KEY"), help="PEM files: the certificate with its chain, and its key"
    )
    parser.add_argument(
        "--give-credentials",
        action="store_true",
        help="give clients this server's options of the object store, with its keys, for the files of tables",
    )


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 1 << 16:
        raise ValueError(text)
    return number


_port.__name__ = "port"


def rest(
    out: CommandOutput,
    *,
    catalog: CatalogAddress,
    host: str = "127.0.0.1",
    port: int = 10000,
    token_file: str | None = None,
    read_token_file: str | None = None,
    allow_anonymous: bool = False,
    read_only: bool = False,
    tls: Sequence[str] | None = None,
    give_credentials: bool = False,
) -> None:
    """Serve until a signal. Raises CommandRefused if other machines could use the server without a token."""
    import asyncio

    from tidelake.rest_server.http_server import Access, RestServer
    from tidelake.rest_server.served_catalog import ServedCatalog

    access = Access(_tokens("--token-file", token_file), _tokens("--read-token-file", read_token_file), read_only)
    if not access.tokens and not access.reading_tokens and not allow_anonymous and host not in _LOOPBACK:
        raise CommandRefused(
            f"--host {host}: every machine in the network could change the tables. Pass --token-file, or "
            "--allow-anonymous if something else checks who connects"
        )
    served = ServedCatalog.open(catalog.warehouse, dict(catalog.options), gives_credentials=give_credentials)
    server = RestServer(served, access, None if tls is None else _tls_context(*tls))
    asyncio.run(server.run(host, port))


def _tokens(option: str, path: str | None) -> tuple[str, ...]:
    if path is None:
        return ()
    tokens = tuple(filter(None, map(str.strip, Path(path).read_text(encoding="utf-8").splitlines())))
    if not tokens:
        raise UsageError(f"{option} {path}: the file has no token; write one per line")
    return tokens


def _tls_context(certificate: str, key: str) -> ssl.SSLContext:
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:
        raise UsageError(f"--tls {certificate} {key}: {error}; pass PEM files of a certificate and its key") from None
    return context
