"""Packs a virtual environment into an archive that Spark unpacks on each machine (`--archives env.tar.gz#tidelake`).

The archive has the interpreter's link, `pyvenv.cfg` and the packages. An interpreter finds `pyvenv.cfg` next to its own
folder, and so the packages of the folder that the archive is unpacked to. The link names the base interpreter by its
path, so each machine needs the same one there. PySpark is left out: a cluster brings its own, of its own release.

Source: the layout of PEP 405; `venv-pack` does the same for an environment without conditions.
"""

from __future__ import annotations

import gzip
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from email import message_from_string
from pathlib import Path
from typing import Final

import msgspec

from tidelake.errors import BadInput
from tidelake.storage.base import env
from tidelake.storage.base.progress import tracked

_LEFT_OUT: Final = frozenset({"pyspark", "pip"})  # distributions
_LEVEL: Final = 6  # of gzip: extension modules become a third


@dataclass(frozen=True, slots=True)
class EnvironmentArchive:
    """A packed environment.

    packages: names and versions of its distributions.
    interpreter: the base interpreter, which each machine needs at this path.
    """

    path: Path
    size_bytes: int
    packages: tuple[str, ...]
    interpreter: Path


def pack_environment(prefix: Path, to: Path) -> EnvironmentArchive:
    """Pack the virtual environment in the folder `prefix`. An existing file is replaced.

    Raises BadInput for a folder that is no virtual environment, for one that uses packages from outside, and for one
    without this package.
    """
    config = prefix / "pyvenv.cfg"
    if not config.is_file():
        raise BadInput(
            f"{prefix} is no virtual environment, so its files can't be moved to other machines. Make one (`python -m "
            "venv env && env/bin/pip install 'tidelake[spark]'`), and run env/bin/tidelake"
        )
    if re.search(r"(?im)^include-system-site-packages\s*=\s*true", config.read_text(encoding="utf-8")):
        raise BadInput(
            f"{prefix} also uses packages of its base interpreter, which other machines may lack. Make an environment "
            "that has its own (`python -m venv env`)"
        )
    (site_packages,) = sorted((prefix / "lib").glob("python*/site-packages"))[:1] or [prefix / "lib"]
    packages, left_out = _distributions(site_packages)
    if not any(name.startswith("tidelake ") for name in packages):
        raise BadInput(f"{prefix} does not have the package tidelake: {prefix}/bin/pip install 'tidelake[spark]'")
    _refuse_other_folders(prefix, site_packages)
    files = list(_files(prefix, site_packages, left_out))
    part = to.with_name(f"{to.name}.{env.new_uuid().hex}.part")
    try:
        with (
            part.open("xb") as raw,
            gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            for path in tracked("packing", files, len(files)):
                archive.add(path, str(path.relative_to(prefix)), recursive=False, filter=_anonymous)
        part.replace(to)
    finally:
        part.unlink(missing_ok=True)
    return EnvironmentArchive(to, to.stat().st_size, tuple(packages), (prefix / "bin" / "python").resolve())


def _distributions(site_packages: Path) -> tuple[list[str], set[Path]]:
    """Return "name version" of the distributions to pack, and the paths of the others."""
    found: list[str] = []
    left_out: set[Path] = set()
    for info in sorted(site_packages.glob("*.dist-info")):
        metadata = message_from_string((info / "METADATA").read_text(encoding="utf-8", errors="replace"))
        name = str(metadata["Name"])
        if name.lower() in _LEFT_OUT:
            left_out |= {info, site_packages / name.lower()}
            continue
        _refuse_editable(name, info)
        found.append(f"{name} {metadata['Version']}")
    return found, left_out


def _refuse_editable(name: str, info: Path) -> None:
    """Raise BadInput for a distribution whose code is in another folder."""
    source = info / "direct_url.json"
    members = msgspec.json.decode(source.read_bytes()) if source.is_file() else {}
    if members.get("dir_info", {}).get("editable"):
        raise BadInput(
            f"{name} is installed as editable, so its code is not in the environment but at {members.get('url')}. "
            "Install it without `-e`"
        )


def _refuse_other_folders(prefix: Path, site_packages: Path) -> None:
    """Raise BadInput for a file `.pth` that adds a folder outside of the environment."""
    for path in sorted(site_packages.glob("*.pth")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            is_folder = bool(line.strip()) and not line.startswith(("#", "import ", "import\t"))
            if is_folder and not (site_packages / line.strip()).resolve().is_relative_to(prefix.resolve()):
                raise BadInput(
                    f"{path} adds {line.strip()}, which is outside of the environment: other machines may lack it. "
                    "Install these packages into the environment, and delete the file"
                )


def _files(prefix: Path, site_packages: Path, left_out: set[Path]) -> Iterator[Path]:
    yield prefix / "pyvenv.cfg"
    yield from sorted((prefix / "bin").glob("python*"))
    folders = [site_packages]
    while folders:
        for path in sorted(folders.pop().iterdir()):
            if path in left_out or path.name == "__pycache__":
                continue
            if path.is_dir() and not path.is_symlink():
                folders.append(path)
            else:
                yield path


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Leave out the user of this machine, whom others may lack."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
