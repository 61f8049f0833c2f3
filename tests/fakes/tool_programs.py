"""What `tools` plays. Each test starts these programs many times, so they load as little as they can."""

from __future__ import annotations

import os
import sys

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
    import hashlib

    return f"sha256:{hashlib.sha256(reference.encode()).hexdigest()}"


def main(program: str, arguments: list[str], directory: str) -> int:
    """Be one of the programs."""
    with open(f"{directory}/calls", "a", encoding="utf-8") as calls:
        calls.write(f"{[program, *arguments]!r}\n")
    if program == "kubectl":
        return _kubectl(arguments)
    command, options, operands = _parse(program, arguments)
    if os.path.exists(f"{directory}/{program}.fail"):
        failing, on, output = _read(f"{directory}/{program}.fail").split("\n", 2)
        if failing == command and any(on in word for word in arguments):
            sys.stdout.write(output + "\n")
            return 1
    return _act(program, command, options, operands, directory)


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


def _act(program: str, command: str, options: dict[str, str], operands: list[str], place: str) -> int:
    match command:
        case "build":
            sys.stdout.write("STEP 2/9: RUN apt-get update\nSuccessfully built\n")
            remember(place, program, (options["--tag"],))
        case "tag":
            remember(place, program, tuple(operands[1:]))
        case "pull":
            remember(place, program, tuple(operands))
        case "image inspect" | "image exists" | "inspect":
            if operands[0] not in _images(place, program):
                return 1
            sys.stdout.write(f"[{operands[0].rpartition(':')[0]}@{digest_of(operands[0])}]\n")
        case "push" if len(operands) > 1 and operands[1].startswith("docker-archive:"):
            _write(operands[1].split(":")[1], operands[0])
        case "push":
            return _push(program, options, operands[0], place)
        case "save":
            _write(options["--output"], "\n".join(operands))
        case _ if command in {"load image-archive", "ctr images import"}:
            return 0 if os.path.isfile(operands[-1]) else 1
        case _:
            sys.stdout.write("1.0\n")
    return 0


def _push(program: str, options: dict[str, str], reference: str, place: str) -> int:
    if reference not in _images(place, program):
        return 1
    if "--digestfile" in options:
        _write(options["--digestfile"], digest_of(reference))
    else:
        sys.stdout.write(f"The push refers to repository [{reference.rpartition(':')[0]}]\n5f70bf18a086: Pushed\n")
        sys.stdout.write(f"{reference.rpartition(':')[2]}: digest: {digest_of(reference)} size: 1234\n")
    return 0


def _kubectl(arguments: list[str]) -> int:
    words = " ".join(arguments)
    if "get-contexts" in words:
        sys.stdout.write(os.environ["FAKE_CONTEXT"] + "\n")
    elif "version" in words:
        sys.stdout.write(f'{{"serverVersion": {{"gitVersion": "{os.environ["FAKE_VERSION"]}"}}}}')
    return 0


def _images(place: str, program: str) -> list[str]:
    file = f"{place}/{program}.images"
    return _read(file).splitlines() if os.path.exists(file) else []


def remember(place: str, program: str, references: tuple[str, ...]) -> None:
    """Have these images from now on."""
    with open(f"{place}/{program}.images", "a", encoding="utf-8") as file:
        file.write("".join(f"{reference}\n" for reference in references))


def _read(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)
