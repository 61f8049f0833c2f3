from __future__ import annotations

from pathlib import Path

import pytest

from local import namespaces, network, paths
from local.errors import LocalError


def test_the_hosts_kernel_settings_are_covered_and_not_changed() -> None:
    script = namespaces.node_setup_script(Path("/l/nodes/node-0"), Path("/l/ns"))
    assert "mount --bind /run/sysctl/vm.overcommit_memory /proc/sys/vm/overcommit_memory" in script
    assert "> /proc/sys/vm" not in script


@pytest.mark.parametrize("before", [None, 0o755, 0o700])
def test_the_directory_is_closed_to_other_users_of_the_machine(
    before: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path / "ours"))
    if before is not None:
        (tmp_path / "ours/volumes").mkdir(parents=True)
        (tmp_path / "ours").chmod(before)

    paths.close()

    assert (tmp_path / "ours").stat().st_mode & 0o777 == 0o700


def test_a_directory_with_files_of_others_is_not_closed_over_their_heads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    (tmp_path / "thesis.tex").touch()
    tmp_path.chmod(0o755)

    with pytest.raises(LocalError, match=r"open to all users of this machine, and has thesis\.tex in it"):
        paths.close()

    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_another_directory_is_another_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/one")
    first = network.mark()
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", "/srv/two")
    assert network.mark() != first
