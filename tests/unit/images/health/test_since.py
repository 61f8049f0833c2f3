"""What is remembered between runs."""

from __future__ import annotations

from pathlib import Path

from images.health.since import GAP_SECONDS, held_for


def held(state: Path, at: float, *conditions: str) -> dict[str, float]:
    return held_for(state, "c", conditions, lambda: at)


def test_what_holds_in_every_run_gets_older(tmp_path: Path) -> None:
    assert held(tmp_path, 1000.0, "a b", "c") == {"a b": 0.0, "c": 0.0}
    assert held(tmp_path, 1030.0, "a b") == {"a b": 30.0}
    assert held(tmp_path, 1060.0, "a b", "c") == {"a b": 60.0, "c": 0.0}


def test_what_did_not_hold_in_between_begins_anew(tmp_path: Path) -> None:
    held(tmp_path, 1000.0, "a")
    held(tmp_path, 1030.0)
    assert held(tmp_path, 1060.0, "a") == {"a": 0.0}


def test_what_nobody_looked_at_for_long_begins_anew(tmp_path: Path) -> None:
    held(tmp_path, 1000.0, "a")
    assert held(tmp_path, 1000.0 + GAP_SECONDS + 1, "a") == {"a": 0.0}


def test_a_clock_of_another_boot_begins_anew(tmp_path: Path) -> None:
    held(tmp_path, 9000.0, "a")
    assert held(tmp_path, 10.0, "a") == {"a": 0.0}


def test_a_file_of_somebody_else_is_no_memory(tmp_path: Path) -> None:
    (tmp_path / "c.since").write_bytes(b"\xff\x00 x\nyesterday 3 a\n1 \n\n1000 today a\n")
    assert held(tmp_path, 1000.0, "a") == {"a": 0.0}


def test_nothing_is_written_where_there_is_nothing_to_remember(tmp_path: Path) -> None:
    held(tmp_path / "state", 1000.0)
    assert not (tmp_path / "state").exists()
