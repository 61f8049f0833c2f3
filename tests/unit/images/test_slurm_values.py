"""Values in what Slurm's commands print."""

from __future__ import annotations

import math

import pytest

from images.common.slurm_records import (
    MEBIBYTE,
    amounts,
    count,
    gpus,
    gpus_in,
    moment,
    seconds,
    size,
    task_count,
    task_ids,
)


def test_times() -> None:
    texts = {"1-02:03:04": 93_784, "2:00:00": 7200, "29:57": 1797, "00:01.250": 1.25}
    assert {text: seconds(text) for text in texts} == texts
    assert {seconds(text) for text in ("UNLIMITED", "INVALID", "NOT_SET", "", "12")} == {None}
    assert [moment(text) for text in ("1800000000", "0", "N/A", "Unknown")] == [1_800_000_000, None, None, None]


def test_numbers_and_sizes() -> None:
    assert [count(text) for text in ("3", "3-5", "12+", "N/A", "")] == [3, 3, 12, 0, 0]
    assert [size(text) for text in ("1843200", "512M", "1.50K", "1?", "")] == [1_843_200, 512 << 20, 1536, None, None]
    assert size("4", MEBIBYTE) == 4 << 20


@pytest.mark.parametrize("text", ["1?", "?", "G", "nan", "many"])
def test_an_amount_that_is_no_number_is_more_than_there_is(text: str) -> None:
    assert amounts(f"cpu=2,mem={text},node=") == {"cpu": 2, "mem": math.inf}
    assert amounts("mem=1.50G,gres/gpu:h100=2,billing=3") == {"mem": 1536, "gres/gpu:h100": 2, "billing": 3}


def test_gpus_of_all_types_are_counted_once() -> None:
    assert gpus_in({"gres/gpu": 4, "gres/gpu:h100": 4}) == 4
    assert gpus_in({"gres/gpu:a": 1, "gres/gpu:b": 2, "cpu": 8}) == 3


def test_gpus_of_a_node_and_of_a_request() -> None:
    texts = {
        "gpu:8": 8, "gpu:h100:8(S:0-1),shard:h100:32(S:0-1)": 8, "gpu:a:2(IDX:0,3),gpu:b:1": 3, "gpu:1g.10gb:7": 7,
        "gres/gpu:h100:2,gres/gpu:1": 3, "gres:gpu=1": 1, "gpu": 1, "gpu:0": 0, "nic:4": 0, "N/A": 0, "": 0,
    }  # fmt: skip
    assert {text: gpus(text) for text in texts} == texts
    assert gpus("gpu:1g.10gb:7(S:0),gpu:3g.40gb:2,gpu:a:2", whole=True) == 2


def test_tasks_that_wait_together_are_told_one_by_one() -> None:
    assert list(task_ids("12_[4-10:3,107%8]")) == ["12_4", "12_7", "12_10", "12_107"]
    assert [list(task_ids(id_)) for id_ in ("12", "12_3", "12+1")] == [["12"], ["12_3"], ["12+1"]]
    assert [task_count(id_) for id_ in ("12", "12_3", "12_[0-99999]", "7_[1-4,9-19:2,30%3]")] == [1, 1, 100_000, 11]
