"""The README in the metadata of a package: its links and pictures lead to the repository.

A package index shows the README without the files beside it, so a relative link would be dead there.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeWithAbsoluteLinks(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata["urls"]["Source"].rstrip("/")
        text = re.sub(r'((?:src|srcset)=")(?!https?:)', rf"\1{repository}/raw/main/", text)
        text = re.sub(r"(\]\()(?!https?:|#)", rf"\1{repository}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
