"""`tidelake completion`: shell scripts with all commands."""

from __future__ import annotations

import subprocess

import pytest

from tests.support.command_line import Call


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_every_shell_gets_a_script_with_our_commands(call: Call, shell: str) -> None:
    result = call("completion", shell)
    assert result.code == 0
    assert [word for word in ("dead-letters", "ingest", "consumers") if word not in result.out] == []


def test_bash_completes_with_it(call: Call) -> None:
    script = call("completion", "bash").out
    ask = 'COMP_WORDS=(tidelake dead-letters re); COMP_CWORD=2; _shtab_tidelake tidelake re; echo "${COMPREPLY[@]}"'
    result = subprocess.run(["bash"], input=f"{script}\n{ask}\n", capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["replay"]
