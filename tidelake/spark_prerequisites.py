"""Checks what Spark needs on this machine, without importing PySpark or leaving a JVM running."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

JAVA_VERSION_MIN: Final = 17
_JAVA_OF_OLD_RELEASES: Final = 8  # PySpark 3.5
_RELEASE_MIN: Final = (3, 5)
_TIMEOUT_SECONDS: Final = 20


def missing_for_spark() -> str | None:
    """Return why Spark can't run here and the remedy, in one sentence; None if nothing is missing."""
    found = find_spec("pyspark")
    if found is None:
        return "PySpark isn't installed: pip install 'tidelake[spark]'"
    release = _release(found.origin)
    if release is not None and release < _RELEASE_MIN:
        text = ".".join(map(str, release))
        return f"PySpark {text} is installed, and tidelake needs 3.5 or newer: pip install -U 'tidelake[spark]'"
    java_min = _JAVA_OF_OLD_RELEASES if release is not None and release < (4, 0) else JAVA_VERSION_MIN
    java = _java()
    if java is None:
        return f"Java was not found: install a JDK or JRE, {java_min} or newer, or set JAVA_HOME"
    version = _java_version(java)
    if version is None:
        return f"{java} doesn't run: set JAVA_HOME to a Java {java_min} or newer"
    if version < java_min:
        return f"{java} is Java {version}, and Spark needs {java_min} or newer: set JAVA_HOME to one"
    return None


def _release(package: str | None) -> tuple[int, ...] | None:
    """Return PySpark's release, (4, 1). Its metadata may be missing: a distribution of Spark brings PySpark as files.

    package: the file of the package
    """
    version = None if package is None else Path(package).with_name("version.py")
    if version is None or not version.is_file():
        return None
    found = re.search(r"__version__[^=]*=\s*[\"'](\d+)\.(\d+)", version.read_text(encoding="utf-8"))
    return None if found is None else (int(found[1]), int(found[2]))


def _java() -> str | None:
    """Return the path of the java program, found as Spark's launcher finds it."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home, "bin", "java")) if home else shutil.which("java")


def _java_version(java: str) -> int | None:
    """Return the major version: 17 for `openjdk version "17.0.15" 2025-04-15`, 8 for `java version "1.8.0_292"`."""
    try:
        run = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', run.stderr + run.stdout)
    return int(found[1]) if found else None
