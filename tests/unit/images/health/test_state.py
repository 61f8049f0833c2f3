"""What is remembered between runs."""

from __future__ import annotations

from pathlib import Path

from images.common.health.contract import Node
from images.health.state import GAP_SECONDS, held_for, only_me
from tests.unit.images.health.tables import table

Runs = list[tuple[float, dict[str, float]]]


@table(
    "runs",
    {
        "what holds in every run gets older": [
            (1000.0, {"a b": 0.0, "c": 0.0}),
            (1030.0, {"a b": 30.0}),
            (1060.0, {"a b": 60.0, "c": 0.0}),
        ],
        "what did not hold in between begins anew": [(1000.0, {"a": 0.0}), (1030.0, {}), (1060.0, {"a": 0.0})],
        "what nobody looked at for long begins anew": [(1000.0, {"a": 0.0}), (1001.0 + GAP_SECONDS, {"a": 0.0})],
        "a clock of another boot begins anew": [(9000.0, {"a": 0.0}), (10.0, {"a": 0.0})],
    },
)
def test_for_how_long_it_has_held(tmp_path: Path, runs: Runs) -> None:
    for at, held in runs:
        assert held_for(Node(name="w-0", state=tmp_path), "c", list(held), lambda at=at: at) == held  # type: ignore[misc]


def test_a_file_of_somebody_else_is_no_memory_and_none_is_written_for_nothing(tmp_path: Path) -> None:
    for text in ("[]", "\x00", '{"a": 3}', '{"a": [1000]}'):
        (tmp_path / "c.since.json").write_text(text)
        assert held_for(Node(name="w-0", state=tmp_path), "c", ["a"], lambda: 1000.0) == {"a": 0.0}
    held_for(Node(name="w-0", state=tmp_path / "state"), "c", [], lambda: 1000.0)
    assert not (tmp_path / "state").exists()


def test_a_lock_cannot_be_opened_by_users_whose_reading_lock_would_keep_root_out(tmp_path: Path) -> None:
    node = Node(name="cpu-0", state=tmp_path)
    with only_me(node, "periodic") as alone:
        assert alone
    assert (tmp_path / "periodic.lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "linked.lock").symlink_to(tmp_path / "elsewhere")
    with only_me(node, "linked") as alone:
        assert alone, "nobody knows, so it goes on"
    assert not (tmp_path / "elsewhere").exists()
