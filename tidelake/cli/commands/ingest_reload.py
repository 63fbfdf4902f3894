"""`tidelake ingest reload`: a running pipeline takes a changed configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidelake.cli.arguments import Commands, add_config, command, finite
from tidelake.cli.output import CommandOutput
from tidelake.errors import BadInput, ReloadRefused, TidelakeError
from tidelake.storage.base import env

if TYPE_CHECKING:
    from tidelake.ingest.pipeline.reload_requests import ReloadAnswer, ReloadRequest, ReloadRequests

_LOOK_S: Final = 0.2  # between two looks for the answer
_TIMEOUT_S: Final = 120


def add_reload(verbs: Commands) -> None:
    parser = command(
        verbs,
        "reload",
        reload,
        "let a running pipeline take a changed configuration, without a restart",
        "The process reads its own file again within 5 s, and takes all changes after its next checkpoint, or none.\n"
        "Tables may be added, removed and changed; the positions of the others stay as they are. Exit code 3: a\n"
        "setting needs a restart. Exit code 1: the file is invalid, or no process answers.",
        example="tidelake ingest reload shop.yaml",
    )
    add_config(parser)
    parser.add_argument(
        "--timeout",
        type=finite,
        default=_TIMEOUT_S,
        metavar="SECONDS",
        help=f"how long to wait for the pipeline's answer; default: {_TIMEOUT_S}",
    )


def reload(out: CommandOutput, *, config: str, settings: Sequence[str], timeout: float = _TIMEOUT_S) -> None:
    """Ask the running pipeline to take the file, and wait for its answer.

    timeout: seconds

    Raises ConfigError for an invalid file, before anything is asked, ReloadRefused if a setting needs a restart, and
    TidelakeError if the pipeline can't take the file, or doesn't answer.
    """
    from tidelake.ingest.config.config import ConfigFile
    from tidelake.ingest.pipeline.reload_requests import ReloadRequests
    from tidelake.storage.fileio import open_file_io

    file = ConfigFile(Path(config), tuple(settings))
    loaded = file.load()
    io = open_file_io(loaded.warehouse, loaded.warehouse_options)
    requests = ReloadRequests(io, loaded.warehouse, loaded.pipeline)
    answer = _answer(requests, requests.ask(file.digest()), loaded.pipeline, timeout)
    if answer.outcome == "refused":
        raise ReloadRefused(answer.reason)
    if answer.outcome == "failed":
        raise BadInput(answer.reason)
    note = "\n".join(answer.lines) or f"{loaded.pipeline} runs with this configuration already"
    out.done({"outcome": answer.outcome, **answer.changes}, note)


def _answer(requests: ReloadRequests, request: ReloadRequest, pipeline: str, timeout_s: float) -> ReloadAnswer:
    until = env.monotonic_s() + timeout_s
    try:
        while (answer := requests.read_answer(request)) is None:
            if env.monotonic_s() >= until:
                raise TidelakeError(_unanswered(pipeline, timeout_s, is_withdrawn=requests.withdraw(request)))
            env.sleep(_LOOK_S)
        return answer
    except KeyboardInterrupt:
        requests.withdraw(request)
        raise


def _unanswered(pipeline: str, timeout_s: float, *, is_withdrawn: bool) -> str:
    if is_withdrawn:
        return (
            f"no process of {pipeline} has answered within {timeout_s:g} s, so the request is withdrawn. If none runs, "
            "the next start reads the file. If one runs, it has another warehouse or name, or it is of "
            "`tidelake spark run`, which has to be restarted"
        )
    return (
        f"{pipeline} has begun to take the changes, and has not answered within {timeout_s:g} s. Its log says what "
        "came of it. Wait longer with --timeout"
    )
