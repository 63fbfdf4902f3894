"""ORC data files."""

from tidelake.storage.files.formats.orc.orc_format import OrcFormat

__all__ = ["OrcFormat"]
