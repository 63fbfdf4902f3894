"""`tidelake init`: writes a configuration from the topics of a Kafka cluster."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tidelake.cli.arguments import WAREHOUSE_VARIABLE, Commands, command, positive
from tidelake.cli.exits import CommandRefused, UsageError
from tidelake.cli.formatting import printable
from tidelake.cli.output import CommandOutput

if TYPE_CHECKING:
    from tidelake.ingest.proposal.proposed_tables import ProposedTables, RecognizedTopic
    from tidelake.ingest.proposal.topic_samples import TopicSample
    from tidelake.ingest.source_settings import KafkaSettings

_BROKER: Final = "localhost:9092"
_WAREHOUSE: Final = "lake"
_REGISTRY: Final = "http://localhost:8081"
_REGISTRY_OPTION: Final = "schema_registry_url"
_STANDARD_OUTPUT: Final = "-"
_LIST_LIMIT_S: Final = 6.0
_NAMES_SHOWN: Final = 8
_OWN_OPTIONS: Final[Mapping[str, str]] = {
    "tables": "init writes the tables of the topics. Choose them with --topics",
    "pipeline": "use --pipeline",
    "warehouse": "use --warehouse",
    "format": "use --format",
    "source.type": "leave it out: init reads Kafka",
    "source.topics": "use --topics",
    "source.topic_pattern": "use --topics",
    "source.bootstrap_servers": "use --brokers",
}
"""Settings that `--set` must not give here, and what to do instead."""


def add_init(nouns: Commands) -> None:
    parser = command(
        nouns,
        "init",
        init,
        "write a commented configuration from the topics of a Kafka cluster",
        "Reads the newest records of each topic, and commits nothing. On a terminal it asks for what the options leave "
        "open.\nKafka's own topics, and those of Kafka Connect and schema registries, are left out.",
        example="tidelake init --brokers localhost:9092 --topics 'shop\\..*' --warehouse lake --output shop.yaml",
        log_level="error",  # the error says the same
    )
    parser.add_argument("--brokers", metavar="HOST:PORT", help=f"brokers, separated by commas; asked for: {_BROKER}")
    parser.add_argument("--topics", metavar="REGEX", help="topics whose whole name matches; default: all")
    parser.add_argument(
        "-w",
        "--warehouse",
        default=os.environ.get(WAREHOUSE_VARIABLE),
        metavar="PATH",
        help=f"path or URI of the warehouse; or set {WAREHOUSE_VARIABLE}; default: {_WAREHOUSE}",
    )
    parser.add_argument(
        "--database", metavar="NAME", help="database of all tables; default: as in the records, or topics"
    )
    parser.add_argument("--pipeline", metavar="NAME", help="name that positions are kept under; default: as the file")
    parser.add_argument(
        "--format", metavar="NAME", help="format of the records; default: recognized. Others are left out"
    )
    parser.add_argument("--registry", metavar="URL", help="schema registry of records in Avro")
    parser.add_argument(
        "--sample",
        type=positive,
        metavar="RECORDS",
        default=100,
        help="newest records of each topic to read; default: 100",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="file to write, or - for standard output; default: DATABASE.yaml"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the file if it exists")
    parser.add_argument("--yes", action="store_true", help="ask nothing, take the defaults")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another setting to use and to write: --set source.security_protocol=SASL_SSL; repeatable. "
        "Passwords are used, but not written",
    )


@dataclass(frozen=True, slots=True)
class InitArguments:
    """The arguments of the command.

    sample: number of the newest records of each topic to read.
    settings: other settings, `name=value`.
    """

    brokers: str | None
    topics: str | None
    warehouse: str | None
    database: str | None
    pipeline: str | None
    format: str | None
    registry: str | None
    sample: int
    output: str | None
    force: bool
    yes: bool
    settings: Sequence[str]


def init(out: CommandOutput, **arguments: Any) -> None:
    """Write the configuration. The arguments are those of `InitArguments`."""
    import asyncio

    from tidelake.errors import BadInput
    from tidelake.ingest.config.config import parse_config
    from tidelake.ingest.proposal.configuration_text import ProposedConfiguration, configuration_text
    from tidelake.ingest.proposal.proposed_tables import propose_tables
    from tidelake.ingest.proposal.topic_samples import sample_topics

    given = InitArguments(**arguments)
    if given.output == _STANDARD_OUTPUT and out.is_json:
        raise UsageError("--json and --output - would both write to standard output: leave out one of them")
    if given.output is not None:
        _check_new(given.output, given.force)
    questions = _Questions(is_asking=sys.stdin.isatty() and not given.yes and not out.is_json)
    connection = _Connection.of(_brokers(given.brokers, questions), given.settings, given.registry)
    chosen = _chosen_topics(given.topics, connection, questions)
    samples = asyncio.run(sample_topics(connection.source, chosen, given.sample))
    recognized, connection = _recognized(given.format, samples, connection, questions)
    format_ = given.format or _format(recognized, questions)
    _check_registry(format_, connection)
    tables = propose_tables(samples.values(), recognized, format_, connection.format_options, given.database)
    if not tables.tables:  # with --format, it is known what the empty topics will have
        tables.tables, tables.empty = tables.empty, []
    if not tables.tables:
        reasons = "; ".join(f"{topic}: {reason}" for topic, reason in tables.left_out.items())
        raise BadInput(f"no topic can feed a table in {format_}: {reasons}. Correct --topics or --format")

    warehouse = given.warehouse or questions.ask(
        "Warehouse: a folder, or an address such as s3://bucket/lake", _WAREHOUSE
    )
    output, name = given.output, _common_database(tables)
    if output is None:
        output = questions.ask("Write to", f"{given.pipeline or name}.yaml")
        _check_new(output, given.force)
    if output != _STANDARD_OUTPUT:
        name = Path(output).stem
    path = f"{name}.yaml" if output == _STANDARD_OUTPUT else output
    fed = {topic for table in tables.tables for topic in table.topics}
    topics = [topic for topic in chosen if topic in fed]
    proposed = ProposedConfiguration(
        path,
        given.pipeline or name,
        warehouse,
        connection.servers,
        topics,
        format_,
        tables,
        connection.others,
        given.sample,
    )
    text = configuration_text(proposed)
    parse_config(text, path, given.settings, os.environ)
    summary = _summary(path, format_, tables)
    if output == _STANDARD_OUTPUT:
        out.bytes.write(text.encode())
        out.note(summary)
        return
    _write(Path(output), text, given.force)
    document = {
        "written": output,
        "pipeline": proposed.pipeline,
        "format": format_,
        "tables": [asdict(table) for table in tables.tables],
        "without_records": [asdict(table) for table in tables.empty],
        "left_out": tables.left_out,
    }
    out.done(document, summary)


# ---------------------------------------------------------------- topics and formats


def _chosen_topics(pattern: str | None, connection: _Connection, questions: _Questions) -> list[str]:
    """Return the topics to propose tables for. Raises BadInput if there are none."""
    import asyncio

    from tidelake.errors import BadInput
    from tidelake.ingest.proposal.topic_samples import is_internal
    from tidelake.ingest.sources.kafka.topic_inspection import list_topics

    if pattern is not None:
        _check_pattern(pattern)
    names = asyncio.run(list_topics(connection.source, _LIST_LIMIT_S))
    of_data = [name for name in names if not is_internal(name)]
    if pattern is None:
        out_of = f"{len(of_data):,} topics: {_listed(of_data)}"
        pattern = questions.ask(f"Topics, as a regular expression ({out_of})", ".*", _check_pattern)
    named = {name.replace("\\", "") for name in pattern.split("|")}  # whoever names an internal topic wants it
    chosen = [name for name in names if re.fullmatch(pattern, name) and (not is_internal(name) or name in named)]
    if not chosen:
        there = f"its topics are {_listed(of_data)}" if of_data else "it has no topics of data"
        raise BadInput(f"no topic at {','.join(connection.servers)} matches {pattern}: {there}. Correct --topics")
    return chosen


def _recognized(
    format_: str | None, samples: Mapping[str, TopicSample], connection: _Connection, questions: _Questions
) -> tuple[dict[str, RecognizedTopic], _Connection]:
    """Return what the records of each topic look like, and the connection, with the registry if one was asked for."""
    from tidelake.ingest.formats.recognition import Recognizer
    from tidelake.ingest.proposal.proposed_tables import recognize

    recognizer = Recognizer(connection.format_options)
    found = {name: recognize(sample, recognizer) for name, sample in samples.items()}
    in_avro = [name for name, like in found.items() if like.needs_registry]
    if format_ is not None or not in_avro or connection.names_registry:
        return found, connection
    registry = questions.ask_if_possible("Schema registry", _REGISTRY)
    if registry is None:
        raise UsageError(
            f"the records of {_listed(in_avro)} are Avro, with schemas in a schema registry: pass --registry URL, or "
            "--format for topics of another format"
        )
    connection = _Connection.of(",".join(connection.servers), connection.settings, registry)
    recognizer = Recognizer(connection.format_options)
    return {name: recognize(sample, recognizer) for name, sample in samples.items()}, connection


def _format(recognized: Mapping[str, RecognizedTopic], questions: _Questions) -> str:
    """Return the format of the topics. Raises UsageError if it must be given."""
    from tidelake.ingest.formats.registry import FORMATS

    found = Counter(like.format for like in recognized.values() if like.format is not None)
    if len(found) == 1:
        return next(iter(found))
    if not found:
        example = next((f": {like.topic} has {like.example}" for like in recognized.values() if like.example), "")
        why = f"no format is recognized{example}" if example else "no topic has records to recognize a format by"
        raise UsageError(f"{why}. Pass --format, one of {', '.join(FORMATS)}")
    by_format = {
        name: [topic for topic, like in recognized.items() if like.format == name] for name, _ in found.most_common()
    }
    listed = "; ".join(f"{name}: {_listed(topics)}" for name, topics in by_format.items())
    if not questions.is_asking:
        raise UsageError(
            f"the topics have several formats, and a pipeline reads one ({listed}). Pass --format, and call init again "
            "with another --format and --output for the others"
        )

    def check(answer: str) -> None:
        if answer not in by_format:
            raise UsageError(f"write one of {', '.join(by_format)}")

    return questions.ask(f"A pipeline reads one format. Which one ({listed})", next(iter(by_format)), check)


def _check_registry(format_: str, connection: _Connection) -> None:
    """Raise UsageError for a registry that is missing, or that the format doesn't use."""
    from tidelake.ingest.formats.recognition import AVRO_FORMATS

    if connection.registry is not None and format_ not in AVRO_FORMATS:
        raise UsageError(f"--registry: records of {format_} refer to no schema registry. Leave it out")
    has_schema = {"schema", "schema_file"} & connection.format_options.keys()
    if format_ in AVRO_FORMATS and not connection.names_registry and not has_schema:
        raise UsageError(f"records of {format_} refer to a schema registry: pass --registry URL")


# ---------------------------------------------------------------- questions


@dataclass(frozen=True, slots=True)
class _Questions:
    """Questions on a terminal. Without one, defaults are the answers."""

    is_asking: bool

    def ask(self, question: str, default: str, check: Callable[[str], None] = lambda _: None) -> str:
        """Return the answer. check: raises UsageError for an answer that is asked for again."""
        while self.is_asking:
            sys.stderr.write(printable(f"{question} [{default}]: "))
            sys.stderr.flush()
            line = sys.stdin.readline()
            if not line:
                raise KeyboardInterrupt  # the end of the input, ^D
            answer = line.strip() or default
            try:
                check(answer)
            except UsageError as error:
                sys.stderr.write(printable(f"{error}\n", may_break=True))
                continue
            return answer
        return default

    def ask_if_possible(self, question: str, default: str) -> str | None:
        """Return the answer, or None without a terminal."""
        return self.ask(question, default) if self.is_asking else None


def _brokers(given: str | None, questions: _Questions) -> str:
    found = questions.ask_if_possible("Kafka brokers", _BROKER) if given is None else given
    if found is None or not found.strip(" ,"):
        raise UsageError(f"name the brokers: --brokers {_BROKER}")
    return found


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UsageError(f"--topics: {pattern!r} is no regular expression ({error}). All topics: '.*'") from None


# ---------------------------------------------------------------- the connection


@dataclass(frozen=True, slots=True)
class _Connection:
    """How the brokers and the schema registry are reached.

    settings: of `--set`.
    registry: the registry that was named; None if none was.
    source, format_options: as a pipeline would have them, from the options and the environment.
    others: settings to write, nested as in a configuration.
    """

    servers: Sequence[str]
    settings: Sequence[str]
    registry: str | None
    source: KafkaSettings
    format_options: Mapping[str, Any]
    others: Mapping[str, Any]

    @classmethod
    def of(cls, brokers: str, settings: Sequence[str], registry: str | None) -> _Connection:
        """Return the connection. Raises UsageError and ConfigError for invalid settings."""
        import json

        from tidelake.ingest.config.config import parse_config
        from tidelake.ingest.source_settings import KafkaSettings

        others = _other_settings(settings, registry)
        servers = [part.strip() for part in brokers.split(",") if part.strip()]
        given: dict[str, Any] = {
            "pipeline": "init",
            "warehouse": _WAREHOUSE,
            "source": {"type": "kafka", "bootstrap_servers": servers, "topic_pattern": ".*"},
            "tables": [{"name": "init.{topic}"}],
        }
        if registry is not None:
            given["format_options"] = {_REGISTRY_OPTION: registry}
        config = parse_config(json.dumps(given), "tidelake init", settings, os.environ)
        assert isinstance(config.source, KafkaSettings)
        return cls(servers, settings, registry, config.source, config.format_options, others)

    @property
    def names_registry(self) -> bool:
        return bool({_REGISTRY_OPTION, _REGISTRY_OPTION.replace("_", ".")} & self.format_options.keys())


def _other_settings(settings: Sequence[str], registry: str | None) -> dict[str, Any]:
    """Return the settings of `--set` as in a configuration. Raises UsageError for one that has an option here."""
    from tidelake.ingest.config.config_layers import ConfigLayers, add_flags

    layer = ConfigLayers()
    add_flags(layer, settings)
    for setting, option in _OWN_OPTIONS.items():
        value: Any = layer.values
        for part in setting.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            raise UsageError(f"--set {setting}: {option}")
    found: dict[str, Any] = layer.values
    if registry is not None:
        found["format_options"] = {**found.get("format_options", {}), _REGISTRY_OPTION: registry}
    return found


# ---------------------------------------------------------------- the file


def _check_new(output: str, force: bool) -> None:
    """Raise CommandRefused for a file that exists, and UsageError for one that can't be written."""
    if output != _STANDARD_OUTPUT and not Path(output).parent.is_dir():
        raise UsageError(f"--output {output}: there is no folder {Path(output).parent}. Create it first")
    if output != _STANDARD_OUTPUT and not force and os.path.lexists(output):
        raise CommandRefused(f"{output} exists. Pass --force to overwrite it, or --output with another name")


def _write(path: Path, text: str, force: bool) -> None:
    if force:
        new = path.with_name(f".{path.name}.new")  # a run that ends in between leaves the old file
        new.write_text(text, encoding="utf-8")
        new.replace(path)
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:  # since the check
        _check_new(str(path), force)


def _common_database(tables: ProposedTables) -> str:
    databases = {table.name.partition(".")[0] for table in tables.tables}
    return databases.pop() if len(databases) == 1 else "pipeline"


def _summary(path: str, format_: str, tables: ProposedTables) -> str:
    count = "1 table" if len(tables.tables) == 1 else f"{len(tables.tables):,} tables"
    lines = [f"{path}: {count} of {format_}"]
    lines += [f"  {table.name} from {', '.join(table.topics)}" for table in tables.tables]
    lines += [f"  commented out: {one.name} from {one.topics[0]}: {one.notes[0]}" for one in tables.empty]
    lines += [f"  left out: {topic}: {reason}" for topic, reason in tables.left_out.items()]
    quoted = shlex.quote(path)
    lines += ["Read it, then:", f"  tidelake ingest plan {quoted} --sample 1000", f"  tidelake ingest run {quoted}"]
    return "\n".join(lines)


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more:,} more" if more > 0 else "")
