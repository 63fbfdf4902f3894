"""Values that are never printed: passwords and keys."""

from __future__ import annotations

import re
from typing import Final

HIDDEN: Final = "***"
SECRET_NAME: Final = re.compile(
    r"pass|secret|token(?!.endpoint)|credential|access.?key|account.?key|api.?key|authorization|user.?info|jaas|salt",
    re.IGNORECASE,
)


class Secret:
    """A value that is never printed. `reveal()` returns it to the client that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return repr(HIDDEN)

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class RedactedOptions(dict[str, str]):
    """Options for another component. Values of options with a secret-sounding name are not printed."""

    def __repr__(self) -> str:
        return repr({name: HIDDEN if SECRET_NAME.search(name) else value for name, value in self.items()})
