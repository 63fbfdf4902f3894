"""ORC data files."""

from storage.files.formats.orc.orc_format import OrcFormat

__all__ = ["OrcFormat"]
