"""What `engine` plays: `pulumi` and `kubectl`. Each test starts them many times, so they load as little as they can."""

from __future__ import annotations

import os
import sys


def main(program: str, arguments: list[str], directory: str) -> int:
    """Be one of the programs."""
    with open(f"{directory}/calls", "a", encoding="utf-8") as calls:
        calls.write(f"{[program, *arguments]!r}\n")
    if arguments[0] == "up" and os.path.exists(f"{directory}/endless"):
        return _end_in_order(directory)
    return _kubectl(arguments, directory) if program == "kubectl" else _pulumi(arguments, directory)


def _read(file: str) -> str:
    with open(file, encoding="utf-8") as opened:
        return opened.read()


def _write(file: str, text: str) -> None:
    with open(file, "w", encoding="utf-8") as opened:
        opened.write(text)


def _kubectl(arguments: list[str], place: str) -> int:
    if "view" in arguments:
        sys.stdout.write("kind: Config\n")
    elif "/readyz" in arguments:
        sys.stdout.write("ok")
    elif os.path.exists(f"{place}/queue") and ("get" in arguments or "controller-0" in arguments):
        if "exec" in arguments:
            sys.stdout.write(_marked(_read(f"{place}/queue"), " ".join(arguments)))
        elif "json" in arguments:
            sys.stdout.write(_objects(arguments, place))
    elif "--raw" in arguments or "exec" in arguments:
        return 1
    return 0


def _marked(queue: str, asked: str) -> str:
    """With the marks between columns that this question has: each process that asks has its own."""
    import re

    mark = re.search("~[0-9a-f]{12}(?=[~!])", asked)
    return re.sub("~[0-9a-f]{12}(?=[~!])", mark[0], queue) if mark else queue


def _objects(arguments: list[str], place: str) -> str:
    import json

    objects = json.loads(_read(f"{place}/objects.json"))
    return json.dumps({"kind": "List", "items": [item for item in objects if item["kind"].lower() in arguments]})


def _pulumi_stack(command: str, place: str) -> int:
    """Make, print or replace the document in Pulumi's state."""
    state = f"{place}/export.json"
    if command == "init":
        _write(state, '{"version": 3, "deployment": {"manifest": {}}}')
    elif command == "export" and not os.path.exists(state):
        sys.stderr.write("error: no stack named 'test' found\n")
        return 255
    elif command == "export":
        sys.stdout.write(_read(state))
    elif os.path.exists(f"{place}/locked"):
        sys.stderr.write("error: the stack is currently locked by 1 lock(s). Either wait or `pulumi cancel`.\n")
        return 255
    elif command == "import":
        _write(state, sys.stdin.read())
    return 0


def _end_in_order(place: str) -> int:
    """Be an update that Ctrl-C ends only when what is being made has been made."""
    import signal
    import time

    interrupted: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: interrupted.append(number))
    _write(f"{place}/updating", "")
    while not interrupted:
        time.sleep(0.01)
    time.sleep(0.6)  # longer than Python's subprocess.run waits before it kills
    _write(f"{place}/ended", "")
    return 255


def _output(name: str, place: str) -> int:
    import json

    outputs = json.loads(_read(f"{place}/outputs.json"))
    if name not in outputs:
        sys.stderr.write(f"error: current stack does not have output property '{name}'\n")
        return 1
    sys.stdout.write(outputs[name])
    return 0


def _pulumi(arguments: list[str], place: str) -> int:
    match arguments:
        case ["stack", "init" | "export" | "import" as command, *_]:
            return _pulumi_stack(command, place)
        case ["refresh", *_]:
            return _pulumi_stack("refresh", place)
        case ["stack", "output", name, *_]:
            return _output(name, place)
        case ["preview", *rest] if "--json" in rest:
            sys.stdout.write(_read(f"{place}/preview.json"))
            return int(_read(f"{place}/preview.code"))
        case ["preview" | "up" | "destroy" as command, *_]:
            _write(f"{place}/{command}.environment", repr(dict(os.environ)))
            sys.stdout.write("the engine's own words\n")
        case _:
            sys.stderr.write(f"unknown command {arguments}\n")
            return 255
    return 0
