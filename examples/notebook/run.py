"""Runs the cells of a notebook and writes what they print into it: `python examples/run.py NOTEBOOK [--check]`.

--check: change nothing; fail if a cell gives something else than the notebook shows.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any


def main() -> int:
    path, check = Path(sys.argv[1]), "--check" in sys.argv[2:]
    notebook = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    count = 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            cell["outputs"] = outputs_of("".join(cell["source"]), names, count)
            cell["execution_count"] = count
    text = json.dumps(notebook, indent=1, ensure_ascii=False) + "\n"
    if check:
        if text != path.read_text(encoding="utf-8"):
            sys.stderr.write(f"{path} shows other outputs than its cells give; run python examples/run.py {path}\n")
            return 1
        return 0
    path.write_text(text, encoding="utf-8")
    return 0


def outputs_of(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Run a cell. Its last line is shown if it is an expression, as in Jupyter."""
    tree = ast.parse(source)
    last = ast.Expression(tree.body.pop().value) if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "<cell>", "exec"), names)
        value = eval(compile(last, "<cell>", "eval"), names) if last is not None else None
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        lines = printed.getvalue().splitlines(keepends=True)
        outputs.append({"name": "stdout", "output_type": "stream", "text": lines})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


if __name__ == "__main__":
    sys.exit(main())
