from __future__ import annotations

from pathlib import Path

import pytest

from local import addresses, paths, pki

RANGES = addresses.from_environment({})


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))
    pki.ensure(RANGES, 2)
    return paths.pki()


def test_keys_are_for_the_owner_only(made: Path) -> None:
    assert all(path.stat().st_mode & 0o077 == 0 for path in made.iterdir())


def test_an_interrupted_run_leaves_nothing_that_looks_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMSTACK_LOCAL_DIR", str(tmp_path))

    def interrupt(*_arguments: object) -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pki, "kubeconfig", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pki.ensure(RANGES, 2)
    assert not paths.pki().exists()
    pki.ensure(RANGES, 2)
    assert (paths.pki() / "admin.kubeconfig").exists()
