"""Registry and digests in a stack file, with everything else as its owner wrote it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from cli.errors import Failure
from cli.images.names import ImageNames, pin, snippet
from config.load import read_sections
from slurm.images import ROLES

NAMES = ImageNames(registry="r.example/new", tag="24.11-abc", slurm_version="24.11")
DIGESTS = {role: f"sha256:{number:064x}" for number, role in enumerate(ROLES, start=1)}
OLD = f"sha256:{0:064x}"

HEAD = """\
# the production stack
encryptionsalt: v1:abc=
config:
"""
REST = """\
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

PINNED = snippet(NAMES, DIGESTS)
WITH_SECRET = PINNED.replace("images:\n", "images:\n    pull_secret: s\n")

CASES = {
    "in braces": ("  slurmstack:images: {registry: r.example/old} # ours\n", PINNED),
    "as JSON": ('  slurmstack:images: \'{"registry": "r.example/old"}\'\n', PINNED),
    "empty": ("  slurmstack:images:\n", PINNED),
    "in lines": (
        f"  slurmstack:images:\n    pull_secret: s # how\n\n    registry: r\n    digests:\n      jail: {OLD} # big\n",
        WITH_SECRET,
    ),
}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "Pulumi.prod.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("case", CASES)
def test_only_registry_and_digests_change(tmp_path: Path, case: str) -> None:
    before, after = CASES[case]
    file = write(tmp_path, HEAD + REST + before + TAIL)
    for _ in ("the first time", "again"):
        pin(file, NAMES, DIGESTS)
        assert file.read_text() == HEAD + REST + after + TAIL


@pytest.mark.parametrize("end", ["\n# the end\n", ""])
def test_a_stack_file_without_the_section_gets_it_at_the_top(tmp_path: Path, end: str) -> None:
    file = write(tmp_path, HEAD + REST.rstrip("\n") + end)
    pin(file, NAMES, DIGESTS)
    assert file.read_text() == HEAD + PINNED + REST.rstrip("\n") + (end or "\n")
    assert read_sections(file)["images"] == {"registry": NAMES.registry, "digests": DIGESTS}


UNFIT = {
    "braces over lines": f"{HEAD}{REST}  slurmstack:images: {{\n    registry: r.example/old\n  }}\n{TAIL}",
    "an anchor": f"{HEAD}{REST}  slurmstack:images: &ours {{registry: r.example/old}}\n  other:images: *ours\n{TAIL}",
}


@pytest.mark.parametrize("case", UNFIT)
def test_what_cannot_be_kept_is_left_alone_and_the_lines_to_add_are_shown(tmp_path: Path, case: str) -> None:
    file = write(tmp_path, UNFIT[case])
    with pytest.raises(Failure) as caught:
        pin(file, NAMES, DIGESTS)
    assert file.read_text() == UNFIT[case]
    assert PINNED in caught.value.hint


def test_mode_and_link_of_the_file_stay_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = write(tmp_path / "real", HEAD + REST)
    real.chmod(0o640)
    link = tmp_path / "Pulumi.prod.yaml"
    link.symlink_to(real)
    pin(link, NAMES, DIGESTS)
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    assert DIGESTS["jail"] in real.read_text()
    assert [path.name for path in (tmp_path / "real").iterdir()] == [real.name]
