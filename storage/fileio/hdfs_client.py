"""Opens the client of an HDFS cluster, and turns its errors into errors that callers know.

Source: Java `HadoopUtils.java` and `SecurityConfiguration.java` (names of the options).
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from tidelake.errors import AccessDenied, BadInput, TidelakeError, UnsupportedFeature
from tidelake.storage.base.logs import get_logger
from tidelake.storage.fileio.own_process import require_own_process

if TYPE_CHECKING:
    from hdfs_native import Client

HdfsOptions = tuple[tuple[str, str], ...]

CONF_DIRECTORY: Final = "hadoop-conf-dir"
_SECURITY: Final = "security.kerberos."
_PRINCIPAL: Final = f"{_SECURITY}login.principal"
_KEYTAB: Final = f"{_SECURITY}login.keytab"
_PREFIX: Final = "hadoop."

# Hadoop's settings that the client knows. Others are those of Hadoop's own client.
_KNOWN_SETTINGS: Final = (
    "fs.defaultFS",
    "fs.viewfs.mounttable.",
    "hadoop.security.authentication",
    "hadoop.security.key.provider.path",
    "dfs.client.block.write.replace-datanode-on-failure.",
    "dfs.client.failover.",
    "dfs.client.socket-timeout",
    "dfs.client.use.datanode.hostname",
    "dfs.data.transfer.protection",
    "dfs.ha.namenodes.",
    "dfs.namenode.rpc-address.",
    "dfs.user.home.dir.prefix",
)

# The client reports an error of a server as RPCError("CLASS", "MESSAGE\n\tat STACK").
_RPC_ERROR: Final = re.compile(r'(?:Fatal)?RPCError\("([\w.$]+)", "(.*)"\)', re.DOTALL)
_TRANSIENT: Final = ("SafeModeException", "StandbyException", "RetriableException", "ObserverRetryOnActiveException")
_LOGIN: Final = ("GSSAPIError", "SASLError", "NoSASLMechanism")

_CODES: Final[Mapping[type[OSError], tuple[int, str]]] = {
    FileNotFoundError: (errno.ENOENT, ""),
    FileExistsError: (errno.EEXIST, ""),
    IsADirectoryError: (errno.EISDIR, ""),
}

_log = get_logger(__name__)


def hdfs_options(options: Mapping[str, str]) -> HdfsOptions:
    """Return the options for HDFS, sorted. Other options must not be passed on."""
    own = (_PREFIX, _SECURITY)
    return tuple(sorted((k, value) for k, value in options.items() if k == CONF_DIRECTORY or k.startswith(own)))


def open_client(scheme: str, authority: str, options: HdfsOptions) -> Client:
    """Return the client of a cluster; one for each process.

    authority: host and port, or a name service; "" for the cluster that `fs.defaultFS` names.
    Raises UnsupportedFeature if the client is not installed, BadInput for settings that name no cluster.
    """
    require_own_process("HDFS")
    return _open_client(scheme, authority, options)


@lru_cache(maxsize=64)
def _open_client(scheme: str, authority: str, options: HdfsOptions) -> Client:
    if find_spec("hdfs_native") is None:
        raise UnsupportedFeature(
            f"{scheme}:// locations", "they need the package hdfs-native", "Install it: pip install 'tidelake[hdfs]'"
        )
    from hdfs_native import Client  # noqa: PLC0415  # optional

    given = dict(options)
    directory = given.get(CONF_DIRECTORY)
    if directory is not None and not os.path.isdir(directory):
        raise BadInput(f"option {CONF_DIRECTORY} is {directory!r}, which is no directory; name that of core-site.xml")
    if (_KEYTAB in given) != (_PRINCIPAL in given):
        raise BadInput(f"only one of {_PRINCIPAL} and {_KEYTAB} is set. Set both, or use the ticket cache of kinit")
    settings = {key.removeprefix(_PREFIX): value for key, value in options if key.startswith(_PREFIX)}
    unused = [key for key in given if key.startswith(_SECURITY) and key not in (_PRINCIPAL, _KEYTAB)]
    unused += [_PREFIX + key for key in settings if not key.startswith(_KNOWN_SETTINGS)]
    if unused:
        _log.warning("HDFS options without effect", cluster=f"{scheme}://{authority}", options=unused)
    try:
        return Client(
            f"{scheme}://{authority}" if authority else None,
            settings,
            directory,
            kerberos_principal=given.get(_PRINCIPAL),
            kerberos_keytab=given.get(_KEYTAB),
        )
    except (RuntimeError, ValueError, OSError) as error:
        raise BadInput(f"cannot reach {scheme}://{authority}: {_detail(error)}. {_remedy(str(error))}") from None


def _remedy(text: str) -> str:
    if "defaultFS" in text:
        return "Name the cluster in the location (hdfs://HOST:8020/path), or set fs.defaultFS in core-site.xml"
    if "fallback" in text:
        return "Let HADOOP_CONF_DIR name the folder of the mount table, and set its linkFallback"
    return "Write the port (hdfs://HOST:8020/path), or let HADOOP_CONF_DIR name the folder of hdfs-site.xml"


@contextmanager
def as_os_errors(path: str) -> Iterator[None]:
    """Raise FileNotFoundError, AccessDenied or another OSError, with the path and the server's message.

    Raises BadInput for a name that HDFS does not allow.
    """
    try:
        yield
    except TidelakeError:
        raise
    except OSError as error:
        if error.errno is not None:
            raise
        code, more = _CODES.get(type(error), (errno.EIO, ". Is the cluster up, and reachable from here?"))
        code = errno.ECONNREFUSED if "refused" in str(error) else code
        raise OSError(code, _detail(error) + more, path) from None  # Python chooses the class by the code
    except RuntimeError as error:
        raise _of_server(error, path) from None


def _of_server(error: Exception, path: str) -> Exception:
    """Return the error to raise instead of one that the client has no class for."""
    detail, found = _detail(error), _RPC_ERROR.fullmatch(str(error))
    kind = found[1].rpartition(".")[2] if found else ""
    if "(is not a directory)" in detail:
        return NotADirectoryError(errno.ENOTDIR, detail, path)
    if kind == "AccessControlException":
        return AccessDenied(
            errno.EACCES, f"{detail}. Grant it, or act as another user (HADOOP_USER_NAME, or kinit)", path
        )
    if str(error).startswith(_LOGIN):
        remedy = "Renew the ticket (kinit; KRB5CCNAME names its cache), or set a principal and a keytab"
        return AccessDenied(errno.EACCES, f"the login failed: {detail}. {remedy}", path)
    if kind.startswith("FSLimitException") or kind == "InvalidPathException":
        return BadInput(f"{path!r}: {detail}")
    if "QuotaExceeded" in kind:
        return OSError(errno.EDQUOT, detail, path)
    if kind in _TRANSIENT:
        return OSError(errno.EAGAIN, detail, path)
    return OSError(errno.EIO, detail, path)


def _detail(error: Exception) -> str:
    """Return the message for people, without the server's stack."""
    found = _RPC_ERROR.fullmatch(str(error))
    text = found[2] if found else str(error)
    return re.split(r"\n|\\n", text, maxsplit=1)[0].replace('\\"', '"').strip()
