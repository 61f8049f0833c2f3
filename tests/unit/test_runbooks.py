"""What somebody reads who was woken: each alert has its section, and each command there can be pasted as it is."""

from __future__ import annotations

import re
import shlex
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer

from cli.program.recording import record
from cli.program.values import reveal
from config.cluster import ClusterConfig
from slurm.alerts import ALERTS
from tests import stacks
from tests.changes import _unwrapped
from tests.first_steps import parsed
from tests.runbooks import (
    CONDITIONS,
    HEAD,
    LOOK,
    MEND,
    OVER,
    PAGE,
    PLACEHOLDERS,
    Command,
    commands,
    expanded,
    functions,
    indented,
    sections,
)
from tests.stacks import ROOT, with_change

USAGE_ERROR = typer.BadParameter.__mro__[1]
"""What the parsers raise: click's, or typer's own of that name."""

VALUES = {
    "NODE": "cpu-0", "JOB": "17", "PARTITION": "main", "USER": "alice", "CHECK": "disks",
    "RESERVATION": "later", "POD": "controller-0", "CLAIM": "controller-state", "REASON": "runbook", "MINUTES": "60",
}  # fmt: skip

FILTERS = {"sort", "uniq", "tail", "base64", "openssl"}
"""What may follow in a pipe."""

READERS = {
    "scontrol": {"show", "ping"}, "sacctmgr": {"show"}, "promtool": {"query"}, "squeue": None, "sinfo": None,
    "sacct": None, "sdiag": None, "df": None, "du": None, "nvidia-smi": None,
}  # fmt: skip
"""Programs in pods that only read -> with which first words; None: whatever follows."""

WRITERS = {"rm", "scontrol", "scancel", "sdiag", "xargs", "amtool", *FILTERS}
"""Those that change something, or pass on what others read."""

SAFE = {
    "squeue": {*"iuPTMrlSQA", "JobID", "UserName", "Partition", "RestartCnt", "Reason", "State"},
    "sacct": {"JobID", "State", "ExitCode", "Start", "End", "NodeList"},
}
"""Programs that show jobs -> what of it users cannot choose: their jobs' names and comments may move the cursor."""

OURS_THAT_READ = {"doctor", "health", "logs", "status", "preview", "validate"}
MENDS = (["up"], ["backup", "now"], ["backup", "rehearse"], ["restore"])

ALL = commands()


def parts(text: str) -> list[list[str]]:
    """The commands of a pipe, as a shell divides them."""
    words = shlex.shlex(text, posix=True, punctuation_chars="|")
    words.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in words:
        if word == "|":
            found.append([])
        else:
            found[-1].append(word)
    return found


@cache
def objects() -> list[tuple[str, dict[str, Any]]]:
    """Kinds, and what the program registers of them for a stack with all that the pages speak of."""
    whole = with_change(stacks.existing_full(), "monitoring", {"install": True})
    whole = with_change(whole, "worker_nodes.gpu.size", {"max": 2})
    items = [item for item in record(whole, stack="prod") if item.type.startswith("kubernetes:")]
    return [(item.type.rpartition(":")[2], reveal(item.inputs)) for item in items]


@cache
def components() -> set[str]:
    return {made["metadata"]["labels"].get("app.kubernetes.io/component") for _, made in objects()}


@cache
def claims() -> set[str]:
    return {made["metadata"]["name"] for kind, made in objects() if kind == "PersistentVolumeClaim"}


@cache
def pods() -> dict[str, tuple[str, set[str]]]:
    """What `kubectl exec` takes -> its component and its containers."""
    found: dict[str, tuple[str, set[str]]] = {}
    for kind, made in objects():
        if kind in {"StatefulSet", "Deployment"}:
            name, template, count = made["metadata"]["name"], made["spec"]["template"], made["spec"]["replicas"]
            containers = [*template["spec"]["containers"], *template["spec"].get("initContainers", [])]
            of = template["metadata"]["labels"]["app.kubernetes.io/component"], {one["name"] for one in containers}
            names = [f"{name}-{number}" for number in range(count)] if kind == "StatefulSet" else [f"deployment/{name}"]
            found |= dict.fromkeys(names, of)
    # Of two controllers one stands by, and a command in its pod fails: the Service leads to the other one.
    return found | {
        f"service/{made['metadata']['name']}": of
        for kind, made in objects()
        for of in found.values()
        if kind == "Service" and made["spec"].get("selector", {}).get("app.kubernetes.io/component") == of[0]
    }


FORM = re.compile(r"\n\w.* Users: .*\.\n\n(    .*\n)+\n(- .*\n)+\nOver: .*\.\n")
"""What it means, also for users; commands to look; causes with what mends each; how to see that it is over."""


def test_each_alert_has_a_section_with_all_parts() -> None:
    head, *alerts = sections().items()
    assert head[0] == HEAD
    assert [name for name, _ in alerts] == [alert.name for alert in ALERTS]
    for name, text in alerts:
        assert FORM.fullmatch(text.rstrip() + "\n"), name
        assert len(text.splitlines()) <= 20, name


def test_the_page_is_short() -> None:
    assert len(PAGE.read_bytes()) <= 10_000
    assert max(map(len, PAGE.read_text(encoding="utf-8").splitlines())) <= 160


def test_the_doctor_is_asked_before_anything_else() -> None:
    assert "**Begin each time with `slurmstack doctor`**" in sections()[HEAD]
    assert next(one.text for one in ALL if not one.text.startswith("export ")) == "slurmstack doctor"


def test_functions_of_the_head_are_used_and_nothing_else_is_called() -> None:
    assert expanded("resume cpu-0") == (
        "kubectl exec -n slurm service/controller-0 -c slurmctld -- scontrol update nodename=cpu-0 state=resume"
    )
    page = PAGE.read_text(encoding="utf-8")
    assert [name for name in functions() if not re.search(rf"(^    |`|\{{ ){name} ", page, re.MULTILINE)] == []
    for name, text in sections().items():
        for span in re.findall(r"`([^`\n]+)`", text):
            assert " " not in span or span.split(" ")[0] not in READERS.keys() | WRITERS, (name, span)


def test_placeholders_are_those_that_the_head_explains() -> None:
    for command in ALL:
        assert command.placeholders <= set(PLACEHOLDERS), command
        assert command.only_with in {"", *CONDITIONS}, command
        assert not re.search(r"<[\w -]+>|\.\.\.", command.text), command


def test_the_head_explains_each_placeholder() -> None:
    assert tuple(re.findall(r"`([A-Z]+)`", sections()[HEAD])) == PLACEHOLDERS
    assert set(VALUES) == set(PLACEHOLDERS)


def test_each_line_calls_programs_that_a_person_has() -> None:
    for command in ALL:
        first, *more = parts(command.filled(VALUES))
        assert first[0] in {"kubectl", "slurmstack"} or (first[0], command.alert) == ("export", HEAD), command
        assert {words[0] for words in more} <= FILTERS | {"kubectl"}, command


def test_slurmstack_has_each_command_and_option() -> None:
    for command in ALL:
        for program, *arguments in parts(command.filled(VALUES)):
            if program == "slurmstack":
                parsed(arguments)
                mends = not command.reads and any(arguments[: len(words)] == words for words in MENDS)
                assert arguments[0] in OURS_THAT_READ or arguments[:2] == ["backup", "list"] or mends, command


def shown(words: list[str]) -> set[str]:
    """Fields that a command of `SAFE` shows; empty where it leaves the choice to Slurm."""
    (form,) = [word for word in words if word.lower().startswith("--format=")] or [""]
    _, _, fields = form.partition("=")
    return set(re.findall(r"%[\d.]*(\w)", fields)) if "%" in fields else set(fields.split(",")) - {""}


def test_jobs_are_shown_without_what_their_users_wrote() -> None:
    lines = [(one.alert, one.text) for one in ALL]
    for page in (ROOT / "docs").glob("*.md"):
        lines += [(page.stem, line) for line in indented(page) if line.startswith("kubectl ")]
    for where, text in lines:
        if not any(program in text for program in SAFE):
            continue
        inside = parts(text.partition(" -- ")[2])
        for words in parts(inside[0][2]) if inside[0][:2] == ["sh", "-c"] else inside:
            if words and words[0] in SAFE:
                assert shown(words), (where, text)
                assert shown(words) <= SAFE[words[0]], (where, text)


@pytest.mark.parametrize("wrong", ["doctor jbo 1", "logs --tial 3", "health run --node cpu-0"])
def test_wrong_words_would_be_seen(wrong: str) -> None:
    with pytest.raises((USAGE_ERROR, AssertionError)):
        parsed(wrong.split())


def test_logs_are_asked_of_what_is_there() -> None:
    known = {
        "POD",
        "policy",
        "backup",
        *(name for component, containers in pods().values() for name in (component, *containers)),
    }
    assert {"policy", "backup"} <= components()
    for command in ALL:
        words = command.text.partition(" | ")[0].split()
        if words[:2] == ["slurmstack", "logs"]:
            # Each option has a value.
            named = [
                word
                for before, word in pairwise(words[1:])
                if not f"{before}{word}".startswith("--") and not word.startswith("--")
            ]
            assert set(named) <= known, command


def test_kubectl_is_asked_of_what_is_there() -> None:
    for command in ALL:
        for program, *arguments in parts(command.filled(VALUES)):
            if program == "kubectl" and arguments != ["get", "nodes"]:
                asked(arguments, command)


def asked(arguments: list[str], command: Command) -> None:
    """One call of kubectl: in the namespace, of what the program registers, and only to read where it says so."""
    verb, *rest = arguments
    if verb == "exec":
        option, namespace, target, container_option, container, dashes, *inside = rest
        assert (option, namespace, container_option, dashes) == ("-n", "slurm", "-c", "--"), command
        assert container in pods()[target][1], command
        assert target != "controller-0", command
        is_known(inside, reads=command.reads)
    elif verb in {"get", "describe", "logs", "top"}:
        is_there(rest)
    else:
        assert not command.reads, command
        assert verb in {"delete", "rollout", "create", "apply"}, command
        if verb in {"delete", "rollout"}:
            is_there(rest)


def is_known(inside: list[str], *, reads: bool) -> None:
    """What runs in a pod: only programs whose nature is known here."""
    called = parts(inside[2]) if inside[:2] == ["sh", "-c"] else [inside]
    for program, *arguments in called:
        first = READERS.get(program, set())
        only_reads = first is None or any(word in first for word in arguments[:1])
        if program == "sdiag" and "--reset" in arguments:
            only_reads = False
        if program == "amtool":
            only_reads = arguments[-2:] == ["alert", "query"]
        assert only_reads or program in FILTERS or (program in WRITERS and not reads), program


def is_there(words: list[str]) -> None:
    """KIND and perhaps NAME, or a label, of what the program registers, in the namespace where it is in one."""
    if "storageclass" in words:
        return
    known = {"pod": pods(), "pvc": claims(), "secret": {"rest-tls"}}
    assert ["-n", "slurm"] in [words[number : number + 2] for number in range(len(words))]
    for kind, name in pairwise(words):
        if kind in known and not name.startswith("-"):
            assert name in known[kind]
        if kind == "-l":
            assert name.removeprefix("app.kubernetes.io/component=") in components()
    assert all(word in pods() for word in words if word.startswith("deployment/"))


def test_each_section_has_commands_to_look_and_few_have_none_to_mend() -> None:
    """That those to look, and to see that it is over, change nothing is looked at with each command."""
    for part, least in ((LOOK, len(ALERTS)), (MEND, len(ALERTS) - 3), (OVER, 10)):
        assert len({one.alert for one in ALL if one.part == part} - {HEAD}) >= least, part


def anchors(page: Path) -> set[str]:
    """As GitHub makes them of headings."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_each_link_leads_somewhere() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE.read_text(encoding="utf-8")):
        file, _, anchor = target.partition("#")
        there = (PAGE.parent / file).resolve() if file else PAGE
        assert there.is_relative_to(ROOT), target
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_keys_of_the_stack_file_are_there() -> None:
    """Such as `jail.size`, wherever the page names one."""
    named = {
        name
        for name in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", PAGE.read_text(encoding="utf-8"))
        if name.partition(".")[0] in ClusterConfig.model_fields
    }
    assert len(named) > 5
    for name in named:
        at: Any = ClusterConfig
        for key in name.split("."):
            assert key in at.model_fields, name
            at, _ = _unwrapped(at.model_fields[key].annotation, ())
