"""How often `elastic` looks, whoever wants it to. Without what is shown here the test would wait for an hour."""

from __future__ import annotations

import time

import pytest

from images.elastic.rounds import Wake

HOUR = 3600.0


@pytest.mark.parametrize("what", ["ask", "change"])
def test_a_pause_ends_when_somebody_asks_or_something_changes(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    looks = Wake()
    getattr(looks, what)()
    looks.wait(HOUR, HOUR if what == "ask" else 0.4)
    assert pauses == [HOUR / 4 if what == "ask" else 0.1], "however often: half of the time goes into looks at most"
    looks.forget()
    looks.wait(0.2, 0.1)  # nobody wants one: it goes on by itself
