"""Links in a jail that is read or written by path, with real mounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from images.backup import settings
from images.common.process import CannotGoOnError


def test_a_jail_whose_links_lead_somewhere_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "JAIL", tmp_path)
    with pytest.raises(CannotGoOnError, match="links in the jail cannot be made harmless"):
        settings.enter_jail()
