"""Calls of procedures by name, with arguments as texts: from the command line, and from `CALL` in SQL."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession

from tidelake.errors import BadInput, UnsupportedFeature
from tidelake.spark import procedures
from tidelake.spark.procedures.repairs import UNSUPPORTED_PROCEDURES
from tidelake.storage.model.messages import did_you_mean
from tidelake.storage.read.condition_text import parse_condition

_GIVEN = ("spark", "warehouse", "catalog_options")


@dataclass(frozen=True)
class ProcedureCall:
    """A call whose name and arguments are checked."""

    name: str
    arguments: Mapping[str, Any]

    @classmethod
    def of(cls, name: str, given: Sequence[tuple[str, str]]) -> ProcedureCall:
        """Check the name, and convert arguments to the types of the procedure's parameters.

        Raises BadInput, and UnsupportedFeature for a procedure that only Java has.
        """
        if name in UNSUPPORTED_PROCEDURES:
            raise UnsupportedFeature(
                f"procedure {name}", UNSUPPORTED_PROCEDURES[name], "Call it in paimon-spark, on the same warehouse"
            )
        if name not in procedures.__all__:
            hint = did_you_mean(name, procedures.__all__) or f"; the procedures are {', '.join(procedures.__all__)}."
            raise BadInput(f"procedure {name!r} does not exist{hint}")
        parameters = inspect.signature(getattr(procedures, name)).parameters
        own = [one for one in parameters if one not in _GIVEN]
        found: dict[str, Any] = {}
        for argument, text in given:
            if argument not in own:
                hint = did_you_mean(argument, own) or f"; its arguments are {', '.join(own)}."
                raise BadInput(f"{name} has no argument {argument!r}{hint}")
            found[argument] = _value(argument, str(parameters[argument].annotation), text)
        for argument in own:
            if argument not in found and parameters[argument].default is inspect.Parameter.empty:
                raise BadInput(f"{name} needs {argument}=…")
        return cls(name, found)

    @property
    def needs_session(self) -> bool:
        """Whether it runs tasks."""
        return "spark" in inspect.signature(self._function).parameters

    def run(self, session: SparkSession | None, warehouse: str, options: Mapping[str, str]) -> Any:
        """Run the procedure, and return its result.

        session: may be None if it needs none
        options: of the store
        """
        given = {**self.arguments, "warehouse": warehouse, "catalog_options": dict(options)}
        return self._function(session, **given) if self.needs_session else self._function(**given)

    @property
    def _function(self) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(procedures, self.name)
        return function


def _value(name: str, annotation: str, text: str) -> Any:
    """Parse the value of an argument.

    annotation: as written in the procedure's signature.
    """
    if annotation.startswith("Predicate"):
        return parse_condition(text)
    if annotation.startswith(("Mapping", "Options")):
        pairs = (one.partition("=") for one in text.split(",") if one)
        return {key.strip(): value.strip() for key, _, value in pairs}
    if annotation.startswith("bool"):
        if text.lower() not in ("true", "false"):
            raise BadInput(f"{name} is true or false, not {text!r}")
        return text.lower() == "true"
    if annotation.startswith("int"):
        try:
            return int(text)
        except ValueError:
            raise BadInput(f"{name} is a whole number, not {text!r}") from None
    return text
