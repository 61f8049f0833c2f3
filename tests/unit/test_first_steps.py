"""What a visitor copies from the first pages works: a test runs each block of code, or its own program accepts it."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from config import load_config
from config.load import sections_of
from slurm.local_cluster import local_directory
from tests.first_steps import AS_USER, PAGES, blocks, parsed, prose, typed_by_administrators, typed_by_users
from tests.stacks import ALICE_KEY, ROOT, existing, nebius

GATE, MAKE_UP = "tests/gate/test_end_to_end.py", "tests/e2e/test_make_up.py"

RUN_BY = {
    "make up": (GATE, 'make("up")'),
    "make down": (GATE, 'make("down")'),
    ".venv/bin/slurmstack login alice": (MAKE_UP, 'slurmstack("login", "alice"'),
    ".venv/bin/slurmstack preview": ("tests/e2e/test_jobs_touched.py", 'slurmstack("preview", '),
    ".venv/bin/slurmstack up": (GATE, "slurm.change(SIZE, 3)"),
    ".venv/bin/slurmstack status": ("tests/e2e/harness.py", '(("status", 1), ("doctor", 3))'),
    ".venv/bin/slurmstack doctor": ("tests/e2e/asking_doctor.py", 'slurmstack("doctor", '),
    ".venv/bin/slurmstack local status": ("tests/e2e/harness.py", 'slurmstack("local", "status"'),
}
"""Each command of docs/local.md: the file that runs it on a real Kubernetes, and how it says so."""

PULUMI = {("login",), ("stack", "output", "--stack", "prod")}
"""What is asked of Pulumi's own command, which is not at hand here."""


def key_for_dots(text: str) -> str:
    """An SSH key is too long to be read in a page."""
    return text.replace("ssh-ed25519 AAAA... alice@laptop", ALICE_KEY)


def accepted(line: str) -> None:
    """What a shell would run of a line, by the rules of the program that it calls."""
    for command in line.split(" && "):
        program, *arguments = shlex.split(command)
        if program.endswith("slurmstack"):
            parsed(arguments)
        elif program == "make":
            assert re.search(rf"^{arguments[0]}:.*##", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        elif program == "pulumi":
            assert tuple(arguments) in PULUMI
        elif program == ".venv/bin/pytest":
            assert all((ROOT / path).exists() for path in arguments)
        else:
            assert program == "export"


@pytest.mark.parametrize("page", PAGES)
def test_each_block_says_its_language_and_none_hides_by_indentation(page: str) -> None:
    assert {language for language, _ in blocks(page)} <= {"sh", "yaml", "console"}
    assert "```" not in prose(page)
    assert not re.search(r"^\n {4}\S", prose(page), re.MULTILINE)


def documents() -> list[tuple[str, str]]:
    return [(page, key_for_dots(text)) for page in PAGES for language, text in blocks(page) if language == "yaml"]


@pytest.mark.parametrize(("page", "text"), documents())
def test_a_stack_file_is_accepted_and_so_is_a_part_of_one(page: str, text: str) -> None:
    document = yaml.safe_load(text)
    if "config" in document:
        load_config(sections_of(document, where=Path(page)))
    else:
        whole = nebius() if page == "docs/nebius.md" else existing()
        load_config({**whole, **sections_of({"config": document}, where=Path(page))})


@pytest.mark.parametrize("page", PAGES)
def test_each_line_is_taken_by_the_program_that_it_calls(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    for line in typed_by_administrators(page):
        # Parsers ask that a file is there which a visitor makes before: any other will do.
        accepted(line.replace("OLD.yaml", "Pulumi.dev.yaml"))


def test_each_command_of_the_local_cluster_is_run_by_a_test() -> None:
    lines = [line for line in typed_by_administrators("docs/local.md") if not line.startswith("export ")]
    assert set(lines) == set(RUN_BY)
    for line, (file, words) in RUN_BY.items():
        assert words in (ROOT / file).read_text(encoding="utf-8"), line


def test_each_command_of_an_own_cluster_is_run_by_a_test() -> None:
    """By its own test, which takes the lines from the page."""
    told = (ROOT / "tests/e2e/test_own_cluster.py").read_text(encoding="utf-8")
    assert 'PAGE = "docs/own-cluster.md"' in told
    assert "typed_by_administrators(PAGE)" in told
    assert not typed_by_users("docs/own-cluster.md")


def test_kubectl_is_led_to_where_the_local_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURMSTACK_LOCAL_DIR", raising=False)
    exported = "\n".join(line for line in typed_by_administrators("docs/local.md") if line.startswith("export "))
    assert f"KUBECONFIG={local_directory()}/cluster/kubeconfig\n" in exported
    assert f"{local_directory()}/cache/bin/kubernetes-*" in exported


def test_what_users_type_is_run_by_the_gate() -> None:
    """By its own test, which takes the blocks from the pages."""
    assert "for page in AS_USER for block in typed_by_users(page)" in (ROOT / GATE).read_text(encoding="utf-8")
    assert {page for page in PAGES if typed_by_users(page)} == set(AS_USER)
    shown = re.findall(r"^alice@\S+\$ (.*)$", "".join(text for _, text in blocks("README.md")), re.MULTILINE)
    run = "".join(text for page in AS_USER for text in typed_by_users(page)).splitlines()
    assert shown
    assert set(shown) <= set(run)
