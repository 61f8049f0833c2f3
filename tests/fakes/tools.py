"""Programs that are not on every machine, as scripts on a PATH: they know their options and note each call.

The options are those of the programs' own documentation; what is not listed there ends like in the real ones, with an
error. Each fake keeps the names of its images in a file, so that it has what was built or tagged before.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

BUILD = {"--file": 1, "--target": 1, "--tag": 1, "--build-arg": 1, "--platform": 1, "--no-cache": 0}

SYNTAX: dict[str, dict[str, dict[str, int]]] = {
    "docker": {
        "version": {"--format": 1},
        "build": {**BUILD, "--pull": 0},
        "push": {},
        "tag": {},
        "save": {"--output": 1},
        "image inspect": {"--format": 1},
        "pull": {"--platform": 1},
    },
    "podman": {
        "info": {},
        "build": {**BUILD, "--pull=": 0, "--tls-verify=": 0},
        "push": {"--digestfile": 1, "--tls-verify=": 0},
        "tag": {},
        "save": {"--output": 1, "--multi-image-archive": 0},
        "image exists": {},
        "image inspect": {"--format": 1},
        "pull": {"--platform": 1, "--tls-verify=": 0},
    },
    "buildah": {
        "info": {},
        "build": {**BUILD, "--layers": 0, "--pull=": 0, "--tls-verify=": 0},
        "push": {"--digestfile": 1, "--tls-verify=": 0},
        "tag": {},
        "inspect": {"--type": 1, "--format": 1},
        "pull": {"--platform": 1, "--tls-verify=": 0},
    },
    "kind": {"load image-archive": {"--name": 1}},
    "k3s": {"ctr images import": {}},
}
"""Program -> command -> option -> number of values. An option that ends in `=` has its value in the same word."""


def digest_of(reference: str) -> str:
    """The digest under which a fake registry takes an image."""
    return f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"


class FakeTools:
    """A PATH with some of the programs."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True)
        self._calls = directory / "calls.jsonl"

    def add(self, *programs: str) -> None:
        """Put programs on the PATH."""
        for program in programs:
            script = self.directory / program
            source = f"#!{sys.executable} -S\nimport sys\nsys.path[:0] = {[str(Path(__file__).parents[2])]!r}\n"
            source += "from tests.fakes.tools import main\n"
            source += f"sys.exit(main({program!r}, sys.argv[1:], {str(self.directory)!r}))\n"
            script.write_text(source, encoding="utf-8")
            script.chmod(0o755)

    def fail(self, program: str, command: str, output: str, *, on: str = "") -> None:
        """Let a command fail with this output, only where one of its words contains `on`."""
        rule = {"command": command, "output": output, "on": on}
        (self.directory / f"{program}.fail").write_text(json.dumps(rule), encoding="utf-8")

    def have(self, program: str, *references: str) -> None:
        """Give a program images."""
        _remember(self.directory, program, references)

    def calls(self, program: str = "", command: str = "") -> list[list[str]]:
        """What was called: the program and its words."""
        lines = self._calls.read_text(encoding="utf-8").splitlines() if self._calls.exists() else []
        found: list[list[str]] = [json.loads(line) for line in lines]
        return [call for call in found if call[0].startswith(program) and " ".join(call[1:]).startswith(command)]


def main(program: str, arguments: Sequence[str], directory: str) -> int:
    """Be one of the programs."""
    place = Path(directory)
    with (place / "calls.jsonl").open("a", encoding="utf-8") as calls:
        calls.write(json.dumps([program, *arguments]) + "\n")
    if program == "kubectl":
        return _kubectl(arguments)
    command, options, operands = _parse(program, arguments)
    failing = place / f"{program}.fail"
    if failing.exists():
        rule = json.loads(failing.read_text(encoding="utf-8"))
        if rule["command"] == command and any(rule["on"] in word for word in arguments):
            sys.stdout.write(rule["output"] + "\n")
            return 1
    return _act(program, command, options, operands, place)


def _parse(program: str, arguments: Sequence[str]) -> tuple[str, dict[str, str], list[str]]:
    command = next((name for name in SYNTAX[program] if " ".join(arguments).startswith(name)), None)
    if command is None:
        sys.exit(f"{program}: unknown command {arguments}")
    known, options, operands = SYNTAX[program][command], {}, []
    rest = list(arguments[len(command.split()) :])
    while rest:
        word = rest.pop(0)
        name, equals, value = word.partition("=")
        if not word.startswith("-"):
            operands.append(word)
        elif equals and f"{name}=" in known:
            options[name] = value
        elif not equals and name in known:
            options[name] = " ".join(rest.pop(0) for _ in range(known[name]))
        else:
            sys.exit(f"{program} {command}: unknown flag: {word}")
    return command, options, operands


def _act(program: str, command: str, options: Mapping[str, str], operands: Sequence[str], place: Path) -> int:
    match command:
        case "build":
            sys.stdout.write("STEP 2/9: RUN apt-get update\nSuccessfully built\n")
            _remember(place, program, [options["--tag"]])
        case "tag":
            _remember(place, program, operands[1:])
        case "pull":
            _remember(place, program, operands)
        case "image inspect" | "image exists" | "inspect":
            if operands[0] not in _images(place, program):
                return 1
            sys.stdout.write(f"[{operands[0].rpartition(':')[0]}@{digest_of(operands[0])}]\n")
        case "push" if len(operands) > 1 and operands[1].startswith("docker-archive:"):
            Path(operands[1].split(":")[1]).write_text(operands[0], encoding="utf-8")
        case "push":
            return _push(program, options, operands[0], place)
        case "save":
            Path(options["--output"]).write_text("\n".join(operands), encoding="utf-8")
        case _ if command in {"load image-archive", "ctr images import"}:
            return 0 if Path(operands[-1]).is_file() else 1
        case _:
            sys.stdout.write("1.0\n")
    return 0


def _push(program: str, options: Mapping[str, str], reference: str, place: Path) -> int:
    if reference not in _images(place, program):
        return 1
    if "--digestfile" in options:
        Path(options["--digestfile"]).write_text(digest_of(reference), encoding="utf-8")
    else:
        sys.stdout.write(f"The push refers to repository [{reference.rpartition(':')[0]}]\n5f70bf18a086: Pushed\n")
        sys.stdout.write(f"{reference.rpartition(':')[2]}: digest: {digest_of(reference)} size: 1234\n")
    return 0


def _kubectl(arguments: Sequence[str]) -> int:
    words = " ".join(arguments)
    if "get-contexts" in words:
        sys.stdout.write(os.environ["FAKE_CONTEXT"] + "\n")
    elif "version" in words:
        sys.stdout.write(json.dumps({"serverVersion": {"gitVersion": os.environ["FAKE_VERSION"]}}))
    return 0


def _images(place: Path, program: str) -> list[str]:
    file = place / f"{program}.images"
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def _remember(place: Path, program: str, references: Sequence[str]) -> None:
    with (place / f"{program}.images").open("a", encoding="utf-8") as file:
        file.write("".join(f"{reference}\n" for reference in references))
