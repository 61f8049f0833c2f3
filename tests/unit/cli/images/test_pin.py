"""Registry and digests in a stack file, with everything else as its owner wrote it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
import yaml

from cli.errors import Failure
from cli.images.names import ImageNames
from cli.images.pin import pin, snippet
from config.errors import ConfigError
from slurm.images import ROLES

NAMES = ImageNames(registry="r.example/new", tag="24.11-abc", slurm_version="24.11")
DIGESTS = {role: f"sha256:{number:064x}" for number, role in enumerate(ROLES, start=1)}
BLOCK = "".join(f"{role}: {DIGESTS[role]}\n" for role in ROLES)

HEAD = """\
# the production stack
encryptionsalt: v1:abc=
config:
  kubernetes:context: prod # another program's key
  slurmstack:cloud: {kind: existing,   context: prod}
  slurmstack:worker_nodes:
    cpu: # a pool
      size: 4
      resources: {cpus: 16, memory: "64Gi"}
      features:
      - avx2 # in the style that YAML's own writer has
"""

TAIL = """\
  # who may log in
  slurmstack:users:
    alice: {uid: 10001}
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(text, encoding="utf-8", newline="")
    return path


def indented(text: str, columns: int) -> str:
    return "".join(" " * columns + line for line in text.splitlines(keepends=True))


NEW = f"""\
  slurmstack:images:
    registry: r.example/new
    digests:
{indented(BLOCK, 6)}"""

WITH_SECRET = f"""\
    registry: r.example/new
    pull_secret: s
    digests:
{indented(BLOCK, 6)}"""

PINS = f"    digests:\n{indented(BLOCK, 6)}"

TWO_DIGESTS = f"""\
  slurmstack:images:
    registry: r.example/old
    digests: # pinned
      jail: {DIGESTS["worker"]} # big
      worker: '{DIGESTS["jail"]}'
    pull_secret: s
"""

ADDED = "".join(f"{role}: {digest}\n" for role, digest in DIGESTS.items() if role not in {"jail", "worker"})

ALL_DIGESTS = f"""\
  slurmstack:images:
    registry: r.example/new
    digests: # pinned
      jail: {DIGESTS["jail"]} # big
      worker: {DIGESTS["worker"]}
{indented(ADDED, 6)}    pull_secret: s
"""

CASES = {
    "in braces": ("  slurmstack:images: {registry: r.example/old}\n", NEW),
    "in braces with a comment": (
        "  slurmstack:images: {registry: r.example/old, pull_secret: s} # ours\n",
        f"  slurmstack:images: # ours\n{WITH_SECRET}",
    ),
    "in braces with a digest": (
        f"  slurmstack:images: {{digests: {{jail: '{DIGESTS['worker']}'}}, registry: r.example/new}}\n", NEW
    ),
    "in braces over lines": ("  slurmstack:images: {\n    registry: r.example/old\n  }\n", NEW),
    "empty braces": ("  slurmstack:images: {}\n", NEW),
    "nothing": ("  slurmstack:images:\n", NEW),
    "in lines": (
        '  slurmstack:images:\n    # where\n    registry: "r.example/old" # what\n    pull_secret: s # how\n',
        f"  slurmstack:images:\n    # where\n    registry: r.example/new # what\n    pull_secret: s # how\n{PINS}",
    ),
    "without a registry": (
        "  slurmstack:images:\n    pull_secret: s\n",
        f"  slurmstack:images:\n    pull_secret: s\n    registry: r.example/new\n    digests:\n{indented(BLOCK, 6)}",
    ),
    "an empty registry": ("  slurmstack:images:\n    registry: # none\n", NEW.replace("new\n", "new # none\n")),
    "digests in lines": (
        TWO_DIGESTS,
        ALL_DIGESTS,
    ),
    "digests in braces": (
        f"  slurmstack:images:\n    digests: {{jail: '{DIGESTS['worker']}'}} # pinned\n    registry: r.example/old\n",
        f"  slurmstack:images:\n    digests: # pinned\n{indented(BLOCK, 6)}    registry: r.example/new\n",
    ),
    "a deep indentation": (
        "  slurmstack:images:\n        registry: r.example/old\n",
        f"  slurmstack:images:\n        registry: r.example/new\n        digests:\n{indented(BLOCK, 10)}",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_only_registry_and_digests_change(tmp_path: Path, case: str) -> None:
    before, after = CASES[case]
    file = write(tmp_path, HEAD + before + TAIL)
    for _ in ("the first time", "again"):
        pin(file, NAMES, DIGESTS)
        assert file.read_text() == HEAD + after + TAIL


@pytest.mark.parametrize(
    ("before", "after"),
    [(HEAD + "# the end\n", HEAD + NEW + "# the end\n"), (HEAD.rstrip("\n"), HEAD + NEW)],
    ids=["before a comment", "after a last line without an end"],
)
def test_a_stack_file_without_the_section_gets_it_at_the_end(tmp_path: Path, before: str, after: str) -> None:
    file = write(tmp_path, before)
    pin(file, NAMES, DIGESTS)
    assert file.read_text() == after


def test_a_literal_text_before_the_end_stays_whole(tmp_path: Path) -> None:
    text = HEAD + TAIL + "  other:motd: |\n    # welcome\n\n    to the cluster\n\n# the end\n"
    file = write(tmp_path, text)
    pin(file, NAMES, DIGESTS)
    assert yaml.safe_load(file.read_text())["config"]["other:motd"] == "# welcome\n\nto the cluster\n"
    assert file.read_text().replace(NEW, "") == text


def test_line_ends_of_other_systems_stay(tmp_path: Path) -> None:
    file = write(tmp_path, (HEAD + CASES["in lines"][0] + TAIL).replace("\n", "\r\n"))
    pin(file, NAMES, DIGESTS)
    assert file.read_bytes().decode() == (HEAD + CASES["in lines"][1] + TAIL).replace("\n", "\r\n")


UNFIT = {
    "a comment in braces": f"{HEAD}  slurmstack:images: {{\n    registry: r.example/old # where\n  }}\n{TAIL}",
    "an anchor": f"{HEAD}  slurmstack:images: &ours {{registry: r.example/old}}\n  other:images: *ours\n{TAIL}",
    "a whole configuration in braces": "config: {'slurmstack:cloud': {kind: existing}}\n",
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_cannot_be_kept_is_left_alone_and_the_lines_to_add_are_shown(tmp_path: Path, case: str) -> None:
    file = write(tmp_path, UNFIT[case])
    with pytest.raises(Failure) as caught:
        pin(file, NAMES, DIGESTS)
    assert file.read_text() == UNFIT[case]
    assert snippet(NAMES, DIGESTS, 2) in caught.value.hint


def test_a_stack_file_never_becomes_invalid(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD + TAIL)
    text = file.read_text()
    with pytest.raises(ConfigError):
        pin(file, NAMES, {**DIGESTS, "jail": "sha256:short"})
    assert file.read_text() == text


def test_mode_and_link_of_the_file_stay_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = write(tmp_path / "real", HEAD + TAIL)
    real.chmod(0o640)
    link = tmp_path / "Pulumi.prod.yaml"
    link.symlink_to(real)
    pin(link, NAMES, DIGESTS)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert DIGESTS["jail"] in real.read_text()
    assert [path.name for path in (tmp_path / "real").iterdir()] == [real.name]
