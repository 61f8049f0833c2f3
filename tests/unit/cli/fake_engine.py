"""`pulumi` and `kubectl` as scripts on a PATH: they note each call and answer from files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: nebius-slurm
contexts: [{name: nebius-slurm, context: {cluster: nebius-slurm, user: nebius-slurm}}]
clusters: [{name: nebius-slurm, cluster: {server: "https://203.0.113.9"}}]
users: [{name: nebius-slurm, user: {exec: {command: nebius, apiVersion: client.authentication.k8s.io/v1}}}]
"""


class FakeEngine:
    """A PATH with the two programs."""

    def __init__(self, directory: Path, *programs: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        for program in programs or ("pulumi", "kubectl"):
            script = directory / program
            source = f"#!{sys.executable} -S\nimport sys\nsys.path[:0] = {[str(Path(__file__).parent)]!r}\n"
            source += f"import fake_engine\nsys.exit(fake_engine.main({program!r}, sys.argv[1:], {str(directory)!r}))\n"
            script.write_text(source, encoding="utf-8")
            script.chmod(0o755)

    @property
    def path(self) -> dict[str, str]:
        """Environment in which only these programs are found."""
        return {"PATH": str(self.directory)}

    def holds(self, document: Mapping[str, Any], **outputs: str) -> None:
        """Let Pulumi's state hold a document and these outputs."""
        (self.directory / "export.json").write_text(json.dumps(document), encoding="utf-8")
        (self.directory / "outputs.json").write_text(json.dumps(outputs), encoding="utf-8")

    def calls(self, program: str, word: str = "") -> list[list[str]]:
        """What one program was called with, where one of the words is `word`."""
        file = self.directory / "calls.jsonl"
        found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        return [call[1:] for call in found if call[0] == program and (not word or word in call)]


def main(program: str, arguments: Sequence[str], directory: str) -> int:
    """Be one of the programs."""
    place = Path(directory)
    with (place / "calls.jsonl").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps([program, *arguments]) + "\n")
    return _kubectl(arguments) if program == "kubectl" else _pulumi(arguments, place)


def _kubectl(arguments: Sequence[str]) -> int:
    if "view" in arguments:
        sys.stdout.write("kind: Config\n")
    elif "/readyz" in arguments:
        sys.stdout.write("ok")
    elif "--raw" in arguments or "exec" in arguments:
        return 1
    return 0


def _pulumi(arguments: Sequence[str], place: Path) -> int:
    match list(arguments):
        case ["stack", "select", *_]:
            return 0
        case ["stack", "export", *_]:
            sys.stdout.write((place / "export.json").read_text(encoding="utf-8"))
        case ["stack", "output", name, *_]:
            outputs = json.loads((place / "outputs.json").read_text(encoding="utf-8"))
            if name not in outputs:
                sys.stderr.write(f"error: current stack does not have output property '{name}'\n")
                return 1
            sys.stdout.write(outputs[name])
        case ["preview", *rest] if "--json" in rest:
            sys.stdout.write('{"steps": [], "changeSummary": {"same": 1}}\n')
        case ["preview" | "up" | "destroy", *_]:
            sys.stdout.write("the engine's own words\n")
        case _:
            sys.stderr.write(f"unknown command {arguments}\n")
            return 255
    return 0
