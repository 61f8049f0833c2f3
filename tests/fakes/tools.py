"""Programs that are not on every machine, as scripts on a PATH: they know their options and note each call.

The options are those of the programs' own documentation; what is not listed there ends like in the real ones, with an
error.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path


class FakeTools:
    """A PATH with some of the programs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self._calls = directory / "calls"

    def add(self, *programs: str) -> None:
        """Put programs on the PATH."""
        for program in programs:
            script = self.directory / program
            source = f"#!{sys.executable} -S\nimport sys\nsys.path[:0] = {[str(Path(__file__).parents[2])]!r}\n"
            source += "from tests.fakes.tool_programs import main\n"
            source += f"sys.exit(main({program!r}, sys.argv[1:], {str(self.directory)!r}))\n"
            script.write_text(source, encoding="utf-8")
            script.chmod(0o755)

    def fail(self, program: str, command: str, output: str, *, on: str = "") -> None:
        """Let a command fail with this output, only where one of its words contains `on`."""
        (self.directory / f"{program}.fail").write_text(f"{command}\n{on}\n{output}", encoding="utf-8")

    def calls(self, program: str = "", command: str = "") -> list[list[str]]:
        """What was called: the program and its words."""
        lines = self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []
        found: list[list[str]] = [ast.literal_eval(line) for line in lines]
        return [call for call in found if call[0].startswith(program) and " ".join(call[1:]).startswith(command)]
