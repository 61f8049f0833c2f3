"""What somebody reads who was woken: each alert has its section, and each command there can be pasted as it is."""

from __future__ import annotations

import re
import shlex
from functools import cache

from cli.program.recording import record
from cli.program.values import reveal
from slurm.alerts import ALERTS, RUNBOOKS
from tests import stacks
from tests.first_steps import parsed
from tests.stacks import ROOT, with_change

TEXT = (ROOT / RUNBOOKS).read_text(encoding="utf-8")

FUNCTIONS = dict(re.findall(r"^    (\w+)\(\) \{ (.*); \}$", TEXT, re.MULTILINE))
"""Those that the head of the page has people define -> what each does."""

VALUES = {"NODE": "cpu-0", "POD": "controller-0", "CHECK": "disks", "MINUTES": "60"}
"""What a person puts for the capitals, where not any word will do."""

CHOSEN_BY_USERS = {
    "squeue": r"%[\d.]*[jkoZV]|--long|--json|JobName|Comment",
    "sacct": r"JobName|Comment|WorkDir|--long",
}
"""Programs that show jobs -> what of it users write, who may move the cursor of who reads it."""


def expanded(text: str) -> str:
    """Without functions of the page, and with the words that a person puts."""
    pieces = re.split(rf" \| (?=(?:{'|'.join(FUNCTIONS)}) )", re.sub(r"\s+# .*$", "", text))
    for number, piece in enumerate(pieces):
        name, _, rest = piece.partition(" ")
        while name in FUNCTIONS:
            piece = FUNCTIONS[name].replace('"$@"', rest).replace('"$1"', rest)  # noqa: PLW2901
            name, _, rest = piece.partition(" ")
        pieces[number] = piece
    return re.sub(r"\b[A-Z]{2,}\b(?!=)", lambda found: VALUES.get(found[0], "x"), " | ".join(pieces))


def commands() -> list[str]:
    """Indented lines, and what is in the text a command of several words."""
    lines = [line.strip() for line in TEXT.splitlines() if line.startswith("    ") and "() {" not in line]
    spans = re.findall(r"`([^`\n]+ [^`\n]+)`", TEXT)
    spans = [span for span in spans if span.split()[0] in {"kubectl", "slurmstack", *FUNCTIONS}]
    return [expanded(line) for line in (*lines, *spans) if not line.startswith("export ")]


def piped(command: str) -> list[list[str]]:
    """The programs of a pipe with their words, as a shell divides them."""
    found: list[list[str]] = [[]]
    words = shlex.shlex(command, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    for word in words:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


@cache
def containers() -> set[tuple[str, str]]:
    """What `kubectl exec` takes, of a stack with all that the page speaks of, and each container there."""
    whole = with_change(stacks.existing_full(), "monitoring", {"install": True})
    made = [(item.type.rpartition(":")[2], reveal(item.inputs)) for item in record(whole, stack="prod")]
    found = set()
    for kind, inputs in made:
        if kind in {"StatefulSet", "Deployment"}:
            spec = inputs["spec"]["template"]["spec"]
            name = inputs["metadata"]["name"]
            names = [f"{name}-{number}" for number in range(inputs["spec"]["replicas"])]
            targets = names if kind == "StatefulSet" else [f"deployment/{name}"]
            targets += ["service/controller-0"] if name == "controller" else []
            found |= {
                (to, one["name"]) for to in targets for one in spec["containers"] + spec.get("initContainers", [])
            }
    return found


def test_each_alert_has_a_section() -> None:
    assert re.findall(r"^## (.*)$", TEXT, re.MULTILINE) == [alert.name for alert in ALERTS]


def test_each_command_of_ours_is_one_and_each_pod_and_container_is_there() -> None:
    assert len(commands()) > 60, "they are found"
    for command in commands():
        for program, *arguments in piped(command):
            if program == "slurmstack":
                parsed(arguments)
            if program == "kubectl" and "exec" in arguments:
                target, flag, container, *_ = arguments[arguments.index("exec") + 1 :]
                assert flag == "-c", command
                assert (target, container) in containers(), command


def test_jobs_are_shown_without_what_their_users_wrote() -> None:
    pages = [line.strip() for page in (ROOT / "docs").glob("*.md") for line in page.read_text().splitlines()]
    for command in (*commands(), *(line for line in pages if line.startswith("kubectl "))):
        for program, chosen in CHOSEN_BY_USERS.items():
            if re.search(rf"\b{program}\b", command):
                assert re.search(r"-format=", command), command
                assert not re.search(chosen, command), command
