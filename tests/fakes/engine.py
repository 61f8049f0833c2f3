"""`pulumi` and `kubectl` as scripts on a PATH: they note each call and answer from files."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
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
            source += (
                f"from tests.fakes.engine import main\nsys.exit(main({program!r}, sys.argv[1:], {str(directory)!r}))\n"
            )
            script.write_text(source, encoding="utf-8")
            script.chmod(0o755)

    @property
    def path(self) -> dict[str, str]:
        """Environment in which only these programs are found."""
        return {"PATH": str(self.directory)}

    def previews(self, document: Mapping[str, Any]) -> None:
        """Let `pulumi preview --json` print a document; with diagnostics it fails."""
        (self.directory / "preview.json").write_text(json.dumps(document), encoding="utf-8")

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
        return dict(json.loads((self.directory / f"{command}.environment").read_text(encoding="utf-8")))

    def lock(self) -> None:
        """Let the stack be locked, as a command that was killed leaves it."""
        (self.directory / "locked").touch()

    def updates_until_interrupted(self) -> None:
        """Let `pulumi up` go on until Ctrl-C, and then take a while to end."""
        (self.directory / "endless").touch()

    def opens(self, sections: Mapping[str, Any], *secret: str) -> None:
        """Let Pulumi's configuration, with all its environments, be these sections; it does not show secret ones."""
        values: dict[str, Any] = {
            f"slurmstack:{name}": {"value": json.dumps(value), "objectValue": value, "secret": False}
            for name, value in sections.items()
        }
        values |= {f"slurmstack:{name}": {"secret": True} for name in secret}
        (self.directory / "config.json").write_text(json.dumps(values), encoding="utf-8")

    def runs(self, objects: Sequence[Mapping[str, Any]], queue: str) -> None:
        """Let the cluster have these objects, and Slurm this answer to whoever asks for the queue."""
        (self.directory / "objects.json").write_text(json.dumps(objects), encoding="utf-8")
        (self.directory / "queue").write_text(queue, encoding="utf-8")

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
    if arguments[0] == "up" and (place / "endless").exists():
        return _end_in_order(place)
    return _kubectl(arguments, place) if program == "kubectl" else _pulumi(arguments, place)


def _kubectl(arguments: Sequence[str], place: Path) -> int:
    if "view" in arguments:
        sys.stdout.write("kind: Config\n")
    elif "/readyz" in arguments:
        sys.stdout.write("ok")
    elif (place / "queue").exists() and ("get" in arguments or "controller-0" in arguments):
        objects = json.loads((place / "objects.json").read_text(encoding="utf-8"))
        found = {"kind": "List", "items": [item for item in objects if item["kind"].lower() in arguments]}
        queue = (place / "queue").read_text(encoding="utf-8")
        sys.stdout.write(queue if "exec" in arguments else json.dumps(found) if "json" in arguments else "")
    elif "--raw" in arguments or "exec" in arguments:
        return 1
    return 0


def _pulumi_stack(command: str, state: Path) -> int:
    """Make, print or replace the document in Pulumi's state."""
    if command == "init":
        state.write_text('{"version": 3, "deployment": {"manifest": {}}}', encoding="utf-8")
    elif command == "export" and not state.exists():
        sys.stderr.write("error: no stack named 'test' found\n")
        return 255
    elif command == "export":
        sys.stdout.write(state.read_text(encoding="utf-8"))
    elif state.with_name("locked").exists():
        sys.stderr.write("error: the stack is currently locked by 1 lock(s). Either wait or `pulumi cancel`.\n")
        return 255
    elif command == "import":
        state.write_text(sys.stdin.read(), encoding="utf-8")
    return 0


def _end_in_order(place: Path) -> int:
    """Be an update that Ctrl-C ends only when what is being made has been made."""
    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    (place / "updating").touch()
    while not interrupted:
        time.sleep(0.01)
    time.sleep(0.6)  # longer than Python's subprocess.run waits before it kills
    (place / "ended").touch()
    return 255


def _pulumi(arguments: Sequence[str], place: Path) -> int:
    match list(arguments):
        case ["stack", "init" | "export" | "import" as command, *_]:
            return _pulumi_stack(command, place / "export.json")
        case ["refresh", *_]:
            return _pulumi_stack("refresh", place / "export.json")
        case ["stack", "output", name, *_]:
            outputs = json.loads((place / "outputs.json").read_text(encoding="utf-8"))
            if name not in outputs:
                sys.stderr.write(f"error: current stack does not have output property '{name}'\n")
                return 1
            sys.stdout.write(outputs[name])
        case ["config", *rest] if {"--json", "--open"} <= set(rest) and "--show-secrets" not in rest:
            sys.stdout.write((place / "config.json").read_text(encoding="utf-8"))
        case ["preview", *rest] if "--json" in rest:
            printed = (place / "preview.json").read_text(encoding="utf-8")
            sys.stdout.write(printed)
            return int("diagnostics" in json.loads(printed))
        case ["preview" | "up" | "destroy" as command, *_]:
            (place / f"{command}.environment").write_text(json.dumps(dict(os.environ)), encoding="utf-8")
            sys.stdout.write("the engine's own words\n")
        case _:
            sys.stderr.write(f"unknown command {arguments}\n")
            return 255
    return 0
