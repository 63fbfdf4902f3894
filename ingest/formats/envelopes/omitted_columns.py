"""The one rule for a column that the new image of an update lacks. `docs/formats.md` has its table.

1. A marker of the record, or an old image that lists only changed columns, proves what happened to the column.
2. A column that any other old image names, and the new image lacks, is NULL: the producer leaves out nulls.
3. Nothing in the record proves it for the remaining columns. Then the format option `omitted` decides. Its default is
what the producer sends by default.

If the option is set, it also decides case 2: GoldenGate's `UPDATERECORDFORMAT COMPACT` sends whole old images, and new
images with only the columns that changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tidelake.ingest.formats.envelopes.envelope import Envelope


class Omitted(StrEnum):
    """What a column is that an update leaves out."""

    NULL = "null"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class OmittedColumns:
    """The rule of one format with its options.

    if_old_names_it: for a column that the old image has and the new image lacks.
    otherwise: for a column that both images lack, and for updates without an old image.
    """

    if_old_names_it: Omitted
    otherwise: Omitted

    @classmethod
    def of(cls, envelope: type[Envelope], option: str | None) -> OmittedColumns:
        """Return the rule. option: the value of `omitted`; None for the format's default."""
        otherwise = Omitted(option or envelope.OMITTED or Omitted.NULL)
        is_proven = option is None or envelope.OLD_LISTS_CHANGES
        return cls(Omitted.NULL if is_proven else otherwise, otherwise)

    def knows_old_values(self, envelope: type[Envelope]) -> bool:
        """Return whether a column that an old image lacks certainly has the value of the new image.

        If nulls are left out, an old image that lists changes lacks a column that was NULL.
        """
        is_listed = envelope.OLD_LISTS_CHANGES and self.otherwise is Omitted.NULL
        return envelope.MISSING_OLD_IS_UNCHANGED and not is_listed
