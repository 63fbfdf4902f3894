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
_TIMEOUT_SECONDS: Final = 20


def missing_for_spark() -> str | None:
    """Return why Spark can't run here and the remedy, in one sentence; None if nothing is missing."""
    if find_spec("pyspark") is None:
        return "PySpark isn't installed: pip install 'tidelake[spark]'"
    java = _java()
    if java is None:
        return f"Java was not found: install a JDK or JRE, {JAVA_VERSION_MIN} or newer, or set JAVA_HOME"
    version = _java_version(java)
    if version is None:
        return f"{java} doesn't run: set JAVA_HOME to a Java {JAVA_VERSION_MIN} or newer"
    if version < JAVA_VERSION_MIN:
        return f"{java} is Java {version}, and Spark needs {JAVA_VERSION_MIN} or newer: set JAVA_HOME to one"
    return None


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
