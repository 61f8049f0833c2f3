"""What `tools` plays. Each test starts these programs many times, so they load as little as they can."""

from __future__ import annotations

import os
import sys

BUILD = {"--file": 1, "--target": 1, "--tag": 1, "--build-arg": 1, "--no-cache": 0, "--pull": 0}
DOCKER: dict[str, dict[str, int]] = {
    "build": BUILD,
    "push": {},
    "tag": {},
}
PUSH = {"--digestfile": 1, "--tls-verify=": 0}

SYNTAX: dict[str, dict[str, dict[str, int]]] = {
    "docker": DOCKER,
    "podman": {**DOCKER, "push": PUSH},
    "buildah": {"build": BUILD, "push": PUSH, "tag": {}},
}
"""Program -> command -> option -> number of values. An option that ends in `=` has its value in the same word."""


def digest_of(reference: str) -> str:
    """The digest under which a fake registry takes an image."""
    import hashlib

    return f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"


def main(program: str, arguments: list[str], directory: str) -> int:
    """Be one of the programs."""
    with open(f"{directory}/calls", "a", encoding="utf-8") as calls:
        calls.write(f"{[program, *arguments]!r}\n")
    command, options, operands = _parse(program, arguments)
    if os.path.exists(f"{directory}/{program}.fail"):
        with open(f"{directory}/{program}.fail", encoding="utf-8") as file:
            failing, on, output = file.read().split("\n", 2)
        if failing == command and any(on in word for word in arguments):
            sys.stdout.write(output + "\n")
            return 1
    return _act(program, command, options, operands)


def _parse(program: str, arguments: list[str]) -> tuple[str, dict[str, str], list[str]]:
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


def _act(program: str, command: str, options: dict[str, str], operands: list[str]) -> int:
    match command:
        case "build":
            sys.stdout.write("STEP 2/9: RUN apt-get update\nSuccessfully built\n")
        case "push":
            _push(program, options, operands[0])
    return 0


def _push(program: str, options: dict[str, str], reference: str) -> None:
    """The words are docker's own."""
    repository, _, tag = reference.rpartition(":")
    if program == "docker":
        sys.stdout.write(f"The push refers to repository [{repository}]\n5f70bf18a086: Pushed\n")
        sys.stdout.write(f"{tag}: digest: {digest_of(reference)} size: 1234\n")
    else:
        _write(options["--digestfile"], digest_of(reference))


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)
