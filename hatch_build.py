"""What a package holds beside its modules.

The README in its metadata: its links and pictures lead to the repository, as a package index shows it without the files
beside it. The pages of docs/, which `tidelake help` shows, become `tidelake/pages` of a wheel.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface


class ReadmeWithAbsoluteLinks(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        repository = metadata["urls"]["Source"].rstrip("/")
        text = re.sub(r'((?:src|srcset)=")(?!https?:)', rf"\1{repository}/raw/main/", text)
        text = re.sub(r"(\]\()(?!https?:|#)", rf"\1{repository}/blob/main/", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class PagesInWheel(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name == "wheel" and version != "editable":  # a checkout has the pages where they are
            pages = sorted((Path(self.root) / "docs").glob("*.md"))
            build_data["force_include"].update({str(page): f"tidelake/pages/{page.name}" for page in pages})
