"""Which of two controllers may write the state, with a clock that is played."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from images.common import terms
from images.common.mountinfo import remembers_names
from images.controller.epochs import LIMIT_SECONDS, MARGIN_SECONDS, RENEWED, Candidate, Epoch

WAIT = LIMIT_SECONDS + MARGIN_SECONDS


@dataclass
class Two:
    """A volume with what one controller has left, and two candidates for it."""

    volume: Path
    time: float = 1000.0
    first: Candidate = field(init=False)
    second: Candidate = field(init=False)

    def __post_init__(self) -> None:
        (self.volume / "job_state").write_text("queue")
        self.first, self.second = self.start("controller-0/a"), self.start("controller-1/b")

    def start(self, me: str) -> Candidate:
        return Candidate(self.volume, me, is_first=me.startswith("controller-0"), clock=lambda: self.time)

    def begin(self) -> Epoch:
        """The first one's, with the other one beside it, which has seen it."""
        assert self.first.look() is None, "the first look may have missed a directory that was being renamed"
        epoch = self.first.look()
        assert epoch is not None
        assert self.second.look() is None
        return epoch


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def test_the_first_epoch_is_of_what_one_controller_has_left(two: Two) -> None:
    assert two.second.look() is None, "the only controller may still run"
    assert two.second.look() is None
    epoch = two.begin()
    assert epoch.over() is None
    assert [path.name for path in two.volume.iterdir()] == ["term-1"]
    assert (epoch.directory / "job_state").read_text() == "queue"


def test_who_renews_keeps_it_and_who_cannot_is_over_before_another_one_begins(two: Two) -> None:
    epoch = two.begin()
    for _ in range(60):
        two.time += 1
        epoch.renew()
        assert (epoch.over(), two.second.look()) == (None, None)
    seen = two.time
    while (next_one := two.second.look()) is None:
        assert two.time < seen + WAIT
        two.time += 0.5
    assert two.time == seen + WAIT
    assert epoch.over() == "the state volume has taken no renewal for 5 s"
    assert next_one.directory.name == "term-2"


def test_one_that_wakes_up_after_another_has_taken_over_learns_it_at_once(two: Two) -> None:
    epoch = two.begin()
    two.time += WAIT
    next_one = two.second.look()
    assert next_one is not None
    content = (next_one.directory / RENEWED).read_bytes()
    epoch.renew()
    assert epoch.over() == "another controller has taken over"
    with pytest.raises(FileNotFoundError):
        epoch.release()
    assert (next_one.directory / RENEWED).read_bytes() == content


def test_a_candidate_that_was_paused_believes_what_it_reads_and_not_its_clock(two: Two) -> None:
    epoch = two.begin()
    for _ in range(100):
        two.time += 1
        epoch.renew()
    assert two.second.look() is None


def test_a_clock_that_was_paused_with_the_machine_ends_the_holder(two: Two) -> None:
    epoch = two.begin()
    two.time += LIMIT_SECONDS
    assert epoch.over() is not None
    epoch.renew()  # nobody has taken over: it may go on, for who could write by that path has it
    assert epoch.over() is None


def test_what_is_released_is_taken_at_once(two: Two) -> None:
    epoch = two.begin()
    epoch.release()
    next_one = two.second.look()
    assert next_one is not None
    assert next_one.over() is None
    assert two.first.look() is None, "it is the other one's now"


def test_a_release_that_comes_late_means_nothing_in_the_next_epoch(two: Two) -> None:
    epoch = two.begin()
    late = os.open(epoch.directory / RENEWED, os.O_WRONLY)
    two.time += WAIT
    assert two.second.look() is not None
    os.pwrite(late, b"1 released\n", 0)
    os.close(late)
    assert two.first.look() is None
    two.time += WAIT - 1
    assert two.first.look() is None


def test_only_one_of_two_takes_it(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = two.begin()
    third = two.start("controller-0/c")
    assert third.look() is None
    two.time += WAIT
    assert two.second.look() is not None
    monkeypatch.setattr(terms, "current", lambda _: epoch.directory)  # as it was a moment ago
    assert third.look() is None
    assert sorted(path.name for path in two.volume.iterdir()) == ["term-2"]


def test_a_container_that_starts_again_goes_on_at_once_and_a_new_pod_waits(two: Two) -> None:
    two.begin()
    again = two.start("controller-0/a").look()
    assert again is not None
    assert again.directory.name == "term-1"
    new_pod = two.start("controller-0/other")
    assert new_pod.look() is None
    two.time += WAIT
    epoch = new_pod.look()
    assert epoch is not None
    assert epoch.directory.name == "term-2"


def test_the_queue_goes_back_to_one_controller_and_no_number_comes_again(two: Two) -> None:
    two.begin()
    terms.return_to_one(two.volume)
    assert (two.volume / "job_state").read_text() == "queue"
    assert two.start("controller-1/b").look() is None
    later = two.start("controller-0/new")
    later.look()
    epoch = later.look()
    assert epoch is not None
    assert epoch.directory.name == "term-2"


def test_a_way_back_to_one_controller_that_was_cut_short_leads_on_to_two(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    (two.begin().directory / "node_state").write_text("nodes")
    rename = Path.rename

    def killed(path: Path, target: Path) -> None:
        rename(path, target)
        if path.parent.name == "moving":
            raise KeyboardInterrupt

    with monkeypatch.context() as during:
        during.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            terms.return_to_one(two.volume)
    assert {path.name for path in two.volume.iterdir()} > {"moving"}
    later = two.start("controller-0/new")
    later.look()
    epoch = later.look()
    assert epoch is not None
    assert {path.name for path in epoch.directory.iterdir()} == {RENEWED, "job_state", "node_state"}
    assert [path.name for path in two.volume.iterdir()] == ["term-2"]


def test_a_volume_that_takes_no_write_renews_nothing(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = two.begin()

    def refuse(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pwrite", refuse)
    two.time += LIMIT_SECONDS
    with pytest.raises(OSError, match="Input/output"):
        epoch.renew()
    assert epoch.over() is not None


@pytest.mark.parametrize(
    ("mounted", "remembers"),
    [
        ("nfs4 server:/state rw,vers=4.2,hard", True),
        ("nfs server:/state rw,lookupcache=none", False),
        ("ceph mon:/state rw", False),
    ],
)
def test_nfs_that_remembers_names_is_known(tmp_path: Path, mounted: str, remembers: bool) -> None:
    """As the kernel lists it: "show_options" of fs/nfs/super.c."""
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(f"500 400 0:40 / / rw - overlay overlay rw\n501 500 0:41 / {tmp_path} rw - {mounted}\n")
    assert remembers_names(tmp_path, mountinfo) is remembers
