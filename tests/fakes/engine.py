"""`pulumi` and `kubectl` as scripts on a PATH: they note each call and answer from files."""

from __future__ import annotations

import ast
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

EMPTY: dict[str, Any] = {"version": 3, "deployment": {"manifest": {}}}
"""What Pulumi exports of a stack that was never applied."""


class FakeEngine:
    """A PATH with the two programs."""

    def __init__(self, directory: Path, *programs: str) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self.previews({"steps": []})
        for program in programs or ("pulumi", "kubectl"):
            script = directory / program
            source = f"#!{sys.executable} -S\nimport sys\nsys.path[:0] = {[str(Path(__file__).parents[2])]!r}\n"
            source += "from tests.fakes.engine_programs import main\n"
            source += f"sys.exit(main({program!r}, sys.argv[1:], {str(directory)!r}))\n"
            script.write_text(source, encoding="utf-8")
            script.chmod(0o755)

    @property
    def path(self) -> dict[str, str]:
        """Environment in which only these programs are found."""
        return {"PATH": str(self.directory)}

    def previews(self, document: Mapping[str, Any]) -> None:
        """Let `pulumi preview --json` print a document; with diagnostics it fails."""
        (self.directory / "preview.json").write_text(json.dumps(document), encoding="utf-8")
        (self.directory / "preview.code").write_text(str(int("diagnostics" in document)), encoding="utf-8")

    def holds(self, document: Mapping[str, Any], **outputs: str) -> None:
        """Let Pulumi's state hold a document and these outputs."""
        (self.directory / "export.json").write_text(json.dumps(document), encoding="utf-8")
        (self.directory / "outputs.json").write_text(json.dumps(outputs), encoding="utf-8")

    @property
    def state(self) -> dict[str, Any]:
        """The document that Pulumi's state holds now."""
        return dict(json.loads((self.directory / "export.json").read_text(encoding="utf-8")))

    def environment(self, command: str) -> dict[str, str]:
        """What the last `pulumi COMMAND` had in its environment."""
        return dict(ast.literal_eval((self.directory / f"{command}.environment").read_text(encoding="utf-8")))

    def lock(self) -> None:
        """Let the stack be locked, as a command that was killed leaves it."""
        (self.directory / "locked").touch()

    def updates_until_interrupted(self) -> None:
        """Let `pulumi up` go on until Ctrl-C, and then take a while to end."""
        (self.directory / "endless").touch()

    def runs(self, objects: Sequence[Mapping[str, Any]], queue: str) -> None:
        """Let the cluster have these objects, and Slurm this answer to whoever asks for the queue."""
        (self.directory / "objects.json").write_text(json.dumps(objects), encoding="utf-8")
        (self.directory / "queue").write_text(queue, encoding="utf-8")

    def calls(self, program: str, word: str = "") -> list[list[str]]:
        """What one program was called with, where one of the words is `word`."""
        return [call[1:] for call in self.all_calls() if call[0] == program and (not word or word in call)]

    def all_calls(self) -> list[list[str]]:
        """The programs with what they were called with, in this order."""
        file = self.directory / "calls"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [ast.literal_eval(line) for line in lines]
