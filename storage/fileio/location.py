"""Parses locations.

Nothing is percent-decoded: `dt=2024-01-01%3A00` is the name of a directory, on disk and in a bucket. Java Paimon's
`Path` does the same.
"""

from __future__ import annotations

import os
import re
from typing import Final, NamedTuple

from tidelake.errors import BadInput

LOCAL_SCHEME: Final = "file"
MEMORY_SCHEME: Final = "memory"  # files in the memory of this process
S3_SCHEMES: Final = ("s3", "s3a", "s3n")
GCS_SCHEMES: Final = ("gs", "gcs")
AZURE_SCHEMES: Final = ("abfs", "abfss", "wasb", "wasbs", "az")
HDFS_SCHEMES: Final = ("hdfs", "viewfs")
# Stores whose own protocol has no client here, but which also speak S3's: their name, and where they do.
S3_ELSEWHERE: Final = {
    "oss": ("Alibaba Cloud OSS", "https://oss-REGION.aliyuncs.com"),
    "cos": ("Tencent Cloud COS", "https://cos.REGION.myqcloud.com"),
    "cosn": ("Tencent Cloud COS", "https://cos.REGION.myqcloud.com"),
    "obs": ("Huawei Cloud OBS", "https://obs.REGION.myhuaweicloud.com"),
}
REMOTE_SCHEMES: Final = (*S3_SCHEMES, *GCS_SCHEMES, *AZURE_SCHEMES)

_LOCAL: Final = re.compile(r"file:(.*)", re.DOTALL | re.IGNORECASE)
_REMOTE: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/]*)/?(.*)", re.DOTALL)


class RemotePath(NamedTuple):
    """`s3://bucket/a/b` has scheme `s3`, authority `bucket` and key `a/b`. The key has no outer slashes; root: ""."""

    scheme: str
    authority: str
    key: str


def scheme_of(location: str) -> str:
    """Return the scheme in lower case; `file` for a plain path, relative or absolute."""
    if _LOCAL.fullmatch(location):
        return LOCAL_SCHEME
    match = _REMOTE.fullmatch(location)
    return match[1].lower() if match else LOCAL_SCHEME


def remote_path(location: str) -> RemotePath:
    """Raise BadInput if no authority is named, if it has a password, or if a part of the key is empty, `.` or `..`."""
    match = _REMOTE.fullmatch(location)
    if match and re.search(":.*@", match[2]):
        # The location is not shown, because messages end up in snapshots and logs.
        raise BadInput(f"a {match[1]}:// location contains a user and password; pass them as options")
    if match is None or not match[2]:
        raise BadInput(f"{location!r} names no bucket; write scheme://bucket/path")
    return RemotePath(match[1].lower(), match[2], _key(location, match[3]))


def hdfs_path(location: str) -> RemotePath:
    """Return the parts of `hdfs://host:port/a/b`. The authority may be "": `hdfs:///a/b`. Raises BadInput."""
    match = _REMOTE.fullmatch(location)
    if match is None or match[1].lower() not in HDFS_SCHEMES:
        raise BadInput(f"{location!r} is not in HDFS; open it with open_file_io")
    if "@" in match[2]:
        raise BadInput(f"a {match[1]}:// location contains a user; set HADOOP_USER_NAME, or use Kerberos")
    return RemotePath(match[1].lower(), match[2], _key(location, match[3]))


def _key(location: str, text: str) -> str:
    """Raise BadInput if a part is empty, `.` or `..`: stores treat `a//b` and `a/../b` as different names."""
    key = text.rstrip("/")
    if key and not {"", ".", ".."}.isdisjoint(key.split("/")):
        raise BadInput(f"{location!r} has an empty part, '.' or '..' in its path; write it without")
    return key


def local_path(location: str) -> str:
    """Return a path for the operating system. Accepts `/a/b`, `a/b`, `file:/a/b`, `file:///a/b`. Raises BadInput."""
    if scheme_of(location) != LOCAL_SCHEME:
        raise BadInput(f"{location!r} is not a local path; open it with open_file_io")
    if "\0" in location:
        raise BadInput(f"{location!r} has a zero byte, which no path can have")
    url = _LOCAL.fullmatch(location)
    if url is None:
        return location
    if not url[1].startswith("//"):
        return url[1]
    host, slash, path = url[1].removeprefix("//").partition("/")
    if host not in ("", "localhost") or not slash:
        raise BadInput(f"{location!r} names the host {host!r}; local paths are file:///path or /path")
    return slash + path


def absolute(location: str) -> str:
    """Return an absolute location, independent of the current directory. Remote locations are not changed."""
    if scheme_of(location) != LOCAL_SCHEME or os.path.isabs(path := local_path(location)):
        return location
    return os.path.abspath(path)
