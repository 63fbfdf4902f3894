"""Compiles the `.proto` text of a schema, with those that it imports, by Google's compiler.

The compiler runs as a process of its own, once for each schema: it takes 50 ms, and can't take this process with it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message import Error

from tidelake.ingest.formats.values.json_text import BadValue

MAIN: Final = "tidelake-schema.proto"
_TIMEOUT_S: Final = 60
_MESSAGE_CHARACTERS_MAX: Final = 500
_PLACE: Final = re.compile(rf"^{re.escape(MAIN)}:", re.MULTILINE)

# Confluent's serializers know these files, so no schema in a registry refers to them.
_CONFLUENT_META: Final = """syntax = "proto3";
package confluent;
import "google/protobuf/descriptor.proto";
message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
extend google.protobuf.FileOptions { Meta file_meta = 1088; }
extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }
"""
_CONFLUENT_DECIMAL: Final = """syntax = "proto3";
package confluent.type;
message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }
"""
_KNOWN: Final = {"confluent/meta.proto": _CONFLUENT_META, "confluent/type/decimal.proto": _CONFLUENT_DECIMAL}


class SchemaFile:
    """A compiled schema: the message types of one file."""

    def __init__(self, files: FileDescriptorSet) -> None:
        pool = descriptor_pool.DescriptorPool()
        try:
            for file in files.file:
                pool.Add(file)
            self._file = pool.FindFileByName(MAIN)
        except (TypeError, KeyError) as error:
            raise BadValue(f"the library of Protobuf refuses the schema: {error}") from None
        (main,) = (file for file in files.file if file.name == MAIN)
        self._messages = [self._file.message_types_by_name[message.name] for message in main.message_type]
        self._protos = main.message_type

    def message(self, path: Sequence[int]) -> Descriptor:
        """Return a message type. path: its number in the file, then that of each nested one. Raises BadValue."""
        try:
            found, proto = self._messages[path[0]], self._protos[path[0]]
            for number in path[1:]:
                proto = proto.nested_type[number]
                found = found.nested_types_by_name[proto.name]
        except IndexError:
            raise BadValue(f"the schema has no message type {list(path)}") from None
        return found


def compiled(text: str, imported: Mapping[str, str]) -> SchemaFile:
    """Return the message types of a schema.

    text: the source of a file, or its descriptor in base64.
    imported: name of each imported file to its text, in either form. Those of Google and Confluent are known.

    Raises BadValue for a schema that the compiler refuses.
    """
    with tempfile.TemporaryDirectory(prefix="tidelake-protobuf-") as folder:
        described = FileDescriptorSet()
        for name, content in {**_KNOWN, **imported, MAIN: text}.items():
            file = _described(content)
            if file is None:
                _write(Path(folder), name, content)
            else:
                file.name = name
                described.file.append(file)
        output, given = Path(folder) / "descriptors", Path(folder) / "given"
        options = ["--include_imports", f"--descriptor_set_out={output}", f"-I{folder}"]
        if described.file:
            given.write_bytes(described.SerializeToString())
            options.append(f"--descriptor_set_in={given}")
        command = [sys.executable, "-m", "grpc_tools.protoc", *options, *_common_types(), MAIN]
        try:
            run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S, cwd=folder)
        except subprocess.TimeoutExpired:
            raise BadValue(f"the compiler of Protobuf took more than {_TIMEOUT_S} s for the schema") from None
        if run.returncode:
            lines = [line for line in run.stderr.replace(folder, "").splitlines() if ".proto:" in line]
            problem = _PLACE.sub("", "; ".join(lines) or run.stderr)[:_MESSAGE_CHARACTERS_MAX]
            raise BadValue(f"the compiler of Protobuf refuses the schema: {problem.strip()}")
        return SchemaFile(FileDescriptorSet.FromString(output.read_bytes()))


def _described(text: str) -> FileDescriptorProto | None:
    """Return the file that the text encodes; None if it is the source of one.

    Confluent's serializers for Python and .NET register encoded files. Not every registry gives their source.
    """
    try:
        file = FileDescriptorProto.FromString(b64decode(text, validate=True))
    except (ValueError, Error):
        return None
    return file if file.message_type or file.enum_type or file.dependency else None


def _write(folder: Path, name: str, text: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise BadValue(f"a schema imports {name!r}, which is no name of a file below a folder")
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")


def _common_types() -> list[str]:
    """Return the option for `google/type/*.proto`, if their package is installed."""
    found = find_spec("google.type")
    places = [] if found is None else list(found.submodule_search_locations or ())
    return [f"-I{Path(place).parent.parent}" for place in places[:1]]
