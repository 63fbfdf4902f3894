"""Checks whether Spark can run here, without starting it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tidelake import spark_prerequisites
from tidelake.spark_prerequisites import missing_for_spark


@pytest.mark.parametrize(
    ("script", "message"),
    [
        pytest.param("echo 'openjdk version \"17.0.15\" 2025-04-15' >&2", None, id="17"),
        pytest.param("echo 'openjdk version \"25\" 2025-09-16' >&2", None, id="25"),
        pytest.param("echo 'java version \"1.8.0_292\"' >&2", "is Java 8, and Spark needs 17 or newer", id="8"),
        pytest.param("exit 1", "doesn't run", id="broken"),
    ],
)
def test_the_java_version_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, message: str | None
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    missing = missing_for_spark()
    assert missing is None if message is None else message in (missing or "")


@pytest.mark.parametrize(
    ("release", "java", "message"),
    [
        pytest.param("3.4.1", 17, "PySpark 3.4 is installed, and tidelake needs 3.5 or newer", id="too old"),
        pytest.param("3.5.6", 11, None, id="an older Java suffices"),
        pytest.param("4.0.1", 11, "is Java 11, and Spark needs 17 or newer", id="a newer release needs a newer Java"),
    ],
)
def test_the_release_of_pyspark_is_checked_without_importing_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str, java: int, message: str | None
) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "version.py").write_text(f'__version__: str = "{release}"\n')
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{java}.0.1\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    origin = SimpleNamespace(origin=str(package / "__init__.py"))
    monkeypatch.setattr(spark_prerequisites, "find_spec", lambda _: origin)
    missing = missing_for_spark()
    assert missing is None if message is None else message in (missing or "")


def test_missing_prerequisites_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Java was not found" in (missing_for_spark() or "")
    monkeypatch.setattr(spark_prerequisites, "find_spec", lambda _: None)
    assert "PySpark isn't installed" in (missing_for_spark() or "")
