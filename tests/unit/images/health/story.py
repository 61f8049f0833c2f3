"""What happens one after another, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping


def play(story: str, rounds: Callable[[float | None], object], happens: Mapping[str, Callable[[], object]]) -> None:
    """Let a story happen: `break; round; 600 s; 20 rounds`.

    `round` is one after the usual while, `600 s` one after so long; other words are the names of what happens.
    """
    for word in story.split("; "):
        number, _, unit = word.rpartition(" ")
        if unit == "s":
            rounds(float(number))
        elif unit in {"round", "rounds"}:
            for _ in range(int(number or 1)):
                rounds(None)
        else:
            happens[word]()
