"""`tidelake spark …`: runs a pipeline's configuration, and procedures, on Spark."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.cli.arguments import CatalogAddress, Commands, add_config, add_warehouse, command, pair
from tidelake.cli.exits import UsageError
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.storage.base import env

if TYPE_CHECKING:
    from tidelake.ingest.settings import Config

_POLL_SECONDS = 0.2


def add_spark(verbs: Commands) -> None:
    _add_run(verbs)
    _add_submit(verbs)
    _add_package(verbs)
    _add_call(verbs)


# ---------------------------------------------------------------- run


def _add_run(verbs: Commands) -> None:
    parser = command(
        verbs,
        "run",
        run,
        "run a pipeline's configuration on Spark Structured Streaming",
        "Positions are in the tables and in Spark's checkpoint directory. Keep that directory as long as the pipeline.",
        log_level="info",
        example="tidelake spark run shop.yaml --master 'local[2]' --checkpoint /var/lib/shop",
    )
    _add_query(parser)
    _add_session(parser)


def run(
    out: CommandOutput,
    *,
    config: str,
    settings: Sequence[str],
    master: str | None,
    conf: Sequence[tuple[str, str]],
    checkpoint: str | None,
) -> None:
    """Run a pipeline until the source ends, or until SIGINT or SIGTERM."""
    from tidelake.ingest.config.config import load_config
    from tidelake.spark_prerequisites import missing_for_spark

    loaded = load_config(Path(config), settings)
    if (missing := missing_for_spark()) is not None:
        raise UnsupportedFeature("tidelake spark run", "Spark can't run here", missing)
    from tidelake.spark.pipeline_query import start_query
    from tidelake.spark.session import start_session

    stop = env.Event()
    spark = start_session(f"tidelake {loaded.pipeline}", master, dict(conf))
    try:
        streams = start_query(spark, loaded, checkpoint or _checkpoint(loaded))
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        out.note(f"query {streams.query.name} is running, id {streams.query.id}")
        while not streams.has_ended() and not stop.wait(_POLL_SECONDS):
            pass
        streams.stop()
        ended = "stopped" if stop.is_set() else "end of source"
    finally:
        spark.stop()
    if out.is_json:
        out.document({"ended": ended, "query_id": str(streams.query.id)})
    else:
        out.note(ended)


# ---------------------------------------------------------------- submit


def _add_submit(verbs: Commands) -> None:
    parser = command(
        verbs,
        "submit",
        submit,
        "run a pipeline's configuration on a cluster, with spark-submit",
        "Arguments after `--` are passed to spark-submit: `-- --master spark://host:7077`.",
        log_level="info",
        example="tidelake spark submit shop.yaml -- --master spark://host:7077",
    )
    _add_query(parser)
    parser.set_defaults(passed_on=())


def submit(
    out: CommandOutput, *, config: str, settings: Sequence[str], checkpoint: str | None, passed_on: Sequence[str]
) -> None:
    """Replace this process by spark-submit.

    passed_on: its options. With `--deploy-mode cluster` the configuration file is submitted, too.
    """
    from tidelake.ingest.config.config import load_config
    from tidelake.spark_prerequisites import missing_for_spark

    loaded = load_config(Path(config), settings)
    if (missing := missing_for_spark()) is not None:
        raise UnsupportedFeature("tidelake spark submit", "spark-submit can't run here", missing)
    is_remote = "cluster" in passed_on
    given = Path(config).name if is_remote else config
    command = [
        spark_submit_program(),
        *_jvm_flags(passed_on),
        *passed_on,
        *(["--files", config] if is_remote else []),
        _file_of("tidelake.__main__"),
    ]
    command += ["spark", "run", given, "--checkpoint", checkpoint or _checkpoint(loaded)]
    command += [f"--set={setting}" for setting in settings]
    if not is_remote:  # the driver runs on this machine, with this interpreter, which has the packages
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.execv(command[0], command)


def _jvm_flags(passed_on: Sequence[str]) -> list[str]:
    """Return JVM flags as options of spark-submit. Later options win.

    passed_on: the user's options
    """
    from tidelake.spark.session import jvm_flags

    # an option overrides settings in a properties file
    named = [value for key, value in pairwise(passed_on) if key == "--properties-file"]
    named += [word.partition("=")[2] for word in passed_on if word.startswith("--properties-file=")]
    texts = [path.read_text(encoding="utf-8", errors="replace") for name in named if (path := Path(name)).is_file()]
    return [part for key, value in jvm_flags(also="\n".join(texts)).items() for part in ("--conf", f"{key}={value}")]


def spark_submit_program() -> str:
    """Return the path of spark-submit: in SPARK_HOME, otherwise that of PySpark."""
    home = os.environ.get("SPARK_HOME") or str(Path(_file_of("pyspark")).parent)
    path = Path(home, "bin", "spark-submit")
    if not path.is_file():
        raise BadInput(f"{path} does not exist: set SPARK_HOME to the folder of a Spark distribution, or unset it")
    return str(path)


def _file_of(module: str) -> str:
    """Return the file of a module, without importing it."""
    from importlib.util import find_spec

    found = find_spec(module)
    assert found is not None
    assert found.origin is not None
    return found.origin


# ---------------------------------------------------------------- package


def _add_package(verbs: Commands) -> None:
    parser = command(
        verbs,
        "package",
        package,
        "pack this virtual environment for the machines of a cluster",
        "spark-submit takes the archive: `tidelake spark submit CONFIG -- --archives tidelake.tar.gz#tidelake …`.\n"
        "It has no PySpark: the cluster has its own. Each machine needs the same base interpreter.",
        example="tidelake spark package --output tidelake.tar.gz",
    )
    parser.add_argument(
        "-o", "--output", default="tidelake.tar.gz", metavar="FILE", help="the archive; default: tidelake.tar.gz"
    )


def package(out: CommandOutput, *, output: str) -> None:
    """Pack the environment of this process."""
    from tidelake.environment_archive import pack_environment

    if not output.endswith((".tar.gz", ".tgz")):
        raise UsageError(f"--output {output}: Spark knows the kind of an archive by its name; let it end with .tar.gz")
    packed = pack_environment(Path(sys.prefix), Path(output))
    if out.is_json:
        members = {"path": str(packed.path), "size_bytes": packed.size_bytes, "packages": packed.packages}
        out.document({**members, "interpreter": str(packed.interpreter)})
        return
    out.note(f"{packed.path}: {len(packed.packages)} packages, {packed.size_bytes >> 20} MiB")
    out.note(f"each machine needs {packed.interpreter}. Options of spark-submit, which work with any master:")
    out.note(f"  --archives {packed.path}#tidelake --conf spark.pyspark.python=./tidelake/bin/python")


# ---------------------------------------------------------------- call


def _add_call(verbs: Commands) -> None:
    parser = command(
        verbs,
        "call",
        call,
        "call a procedure of Paimon on Spark",
        "compact, expire_snapshots, create_tag, rollback, remove_orphan_files, …. Arguments have Paimon's names.",
        example="tidelake spark call compact table=shop.orders -w lake",
    )
    parser.add_argument("procedure", metavar="NAME", help="a procedure of tidelake.spark.procedures")
    parser.add_argument(
        "arguments",
        nargs="*",
        type=pair,
        metavar="ARGUMENT=VALUE",
        help="after the name: table=db.t order_by=a,b …",
    )
    add_warehouse(parser)
    _add_session(parser)


def call(
    out: CommandOutput,
    *,
    procedure: str,
    arguments: Sequence[tuple[str, str]],
    catalog: CatalogAddress,
    master: str | None,
    conf: Sequence[tuple[str, str]],
) -> None:
    """Call a procedure. A session is started only for procedures with tasks."""
    from tidelake.spark_prerequisites import missing_for_spark

    if (missing := missing_for_spark()) is not None:
        raise UnsupportedFeature("Paimon's procedures", "Spark can't run here", missing)
    from tidelake.spark.procedures.calls import ProcedureCall

    try:
        prepared = ProcedureCall.of(procedure, arguments)
    except BadInput as error:
        raise UsageError(str(error)) from None
    if not prepared.needs_session:
        _show(out, procedure, prepared.run(None, catalog.warehouse, dict(catalog.options)))
        return
    from tidelake.spark.session import start_session

    spark = start_session(f"tidelake {procedure}", master, dict(conf))
    try:
        found = prepared.run(spark, catalog.warehouse, dict(catalog.options))
    finally:
        spark.stop()
    _show(out, procedure, found)


def _show(out: CommandOutput, procedure: str, found: Any) -> None:
    members = _members(found)
    if out.is_json:
        out.document({"procedure": procedure, "result": members})
    else:
        out.note(f"{procedure}: done" if found is None else f"{procedure}: {members}")


def _members(found: Any) -> Any:
    from tidelake.compaction.report import CompactionReport

    if isinstance(found, CompactionReport):
        return found.to_members()
    if isinstance(found, dict):
        return {name: _members(one) for name, one in found.items()}
    return found._asdict() if hasattr(found, "_asdict") else found


# ---------------------------------------------------------------- what they share


def _add_query(parser: argparse.ArgumentParser) -> None:
    add_config(parser)
    parser.add_argument(
        "--checkpoint", metavar="DIR", help="Spark's checkpoint directory; default: <pipeline>.spark in the warehouse"
    )


def _add_session(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--master", help="Spark master; default: that of spark-submit, otherwise local[*]")
    parser.add_argument(
        "--conf",
        action="append",
        type=pair,
        default=[],
        metavar="KEY=VALUE",
        help="a setting of the Spark session, repeatable",
    )


def _checkpoint(config: Config) -> str:
    """Return the default checkpoint directory, in the warehouse.

    It must be a local one, as Spark may be unable to write to other stores.
    """
    if "://" in config.warehouse:
        raise BadInput(f"warehouse {config.warehouse}: pass --checkpoint with a directory that Spark can write to")
    return str(Path(config.warehouse, f"{config.pipeline}.spark").absolute())
