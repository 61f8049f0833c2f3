"""The moving picture of README.md is drawn from a recording."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from tests.first_run import LAST_S, LONGEST_S, Event, draw, film, read_cast, write_cast

SESSION: list[Event] = [
    (0.0, "# make up\r\n"),
    *(
        (1.0 + second, f"\x1b[?25l\r\x1b[2K\x1b[32m⠋\x1b[0m Build \x1b[2m{second} of 400\x1b[0m")
        for second in range(400)
    ),
    (401.0, "\r\x1b[2K\x1b[1A\x1b[2K# make up\r\n\x1b[32m✓\x1b[0m Build <all> & more \x1b["),
    (401.1, "2m6 min 40 s\x1b[0m\r\n"),
]


def test_a_wait_of_minutes_takes_seconds_and_is_seen_to_go_on() -> None:
    shown = film(SESSION)
    texts = ["\n".join("".join(text for _, text in line) for line in lines) for _, lines in shown]
    assert len({text for text in texts if "of 400" in text}) > 3
    assert texts[-1] == "# make up\n✓ Build <all> & more 6 min 40 s\n"
    assert sum(seconds for seconds, _ in shown) < 3 * LONGEST_S + LAST_S


def test_the_picture_stands_alone_and_keeps_what_was_printed(tmp_path: Path) -> None:
    write_cast(SESSION, tmp_path / "cast")
    picture = draw(read_cast(tmp_path / "cast"))
    root = ET.fromstring(picture)  # as a browser reads it, which takes no half-escaped text
    assert "✓ Build <all> & more 6 min 40 s" in "".join(root.itertext())
    assert "script" not in picture
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    assert "prefers-reduced-motion" in picture
    assert "mirror" not in draw([(0.0, "Get:4 https://mirror.example.org/debian trixie")])
