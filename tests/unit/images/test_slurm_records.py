"""Slurm's records, its queue, and the values in them, as its commands print them."""

from __future__ import annotations

import json
import math

import pytest

from images.common.slurm_jobs import Job, JobList
from images.common.slurm_node import waits_for_topology, wanted_nodes
from images.common.slurm_records import (
    MEBIBYTE,
    Columns,
    NodeRecord,
    NotUnderstoodError,
    amounts,
    count,
    entries_in,
    expand,
    fields_of,
    gpus,
    gpus_in,
    moment,
    node_of,
    nodes_in,
    seconds,
    size,
)
from tests.fakes.squeue import printed


def test_states_and_reasons_are_read_from_slurms_own_lines() -> None:
    text = (
        "NodeName=a-0 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 State=IDLE+DRAIN+DYNAMIC_NORM ThreadsPerCore=1 "
        "CurrentWatts=0 AveWatts=0 Reason=slurmstack:waiting-for-topology [slurm@2026-11-21T14:42:58] \n"
        "NodeName=a-1 Arch=x86_64 State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 \n"
        "NodeName=a-2 Arch=x86_64 State=DOWN+DYNAMIC_NORM Reason=slurmstack:waiting-for-topology [slurm@2026] \n"
    )
    assert [(node.name, waits_for_topology(node)) for node in nodes_in(text)] == [
        ("a-0", True),
        ("a-1", False),
        ("a-2", False),
    ]
    assert nodes_in("No nodes in the system\n") == []


def test_a_comment_may_look_like_anything() -> None:
    line = "ReservationName=x Nodes=a-[0-1] Users=(null) Comment=to be Nodes=z (null) Comment=kept"
    assert fields_of(line, last="Comment") == {
        "ReservationName": "x",
        "Nodes": "a-[0-1]",
        "Users": "",
        "Comment": "to be Nodes=z (null) Comment=kept",
    }
    assert fields_of("No reservations in the system", last="Comment") == {"Comment": ""}


def test_states_may_be_a_list_or_one_text_and_a_node_without_any_is_not_known() -> None:
    (entry,) = entries_in('{"nodes": [{"name": "w-0"}]}', "nodes")
    for state in (["idle", "DRAIN"], "IDLE+DRAIN"):
        record = node_of({**entry, "state": state, "reason": "bad memory"}, NodeRecord)
        want = NodeRecord(name="w-0", states=frozenset({"IDLE", "DRAIN"}), reason="bad memory", address="w-0")
        assert record == want
        assert record.is_drained
    for other in (entry, {"name": "w-0", "state": []}, {"name": 7, "state": "IDLE"}):
        assert node_of(other, NodeRecord) is None


def test_garbage_is_an_error_and_never_an_empty_list() -> None:
    for text in ("no json", "[]", "{}", "null", '{"nodes": 7}', '{"nodes": ["w-0"]}'):
        with pytest.raises(NotUnderstoodError, match="the list of nodes was not understood"):
            entries_in(text, "nodes")


def test_columns_have_any_text_and_nothing_where_slurm_has_nothing() -> None:
    columns = Columns(("A", "B"))
    rows = [{"A": "a\n~0~|b\u2028", "B": "(null)"}, {"A": "", "B": "long e"}]
    assert list(columns.rows(printed(columns.option, rows))) == [{"A": rows[0]["A"], "B": ""}, rows[1]]
    assert list(columns.rows("")) == []


def test_a_list_that_is_cut_off_or_has_other_columns_is_refused() -> None:
    columns = Columns(("A", "B"))
    text = printed(columns.option, [{"A": "1", "B": "2"}])
    with pytest.raises(NotUnderstoodError):
        list(columns.rows(text * 2 + text[: len(text) // 2]))
    with pytest.raises(NotUnderstoodError):
        list(columns.rows(printed(columns.option, [{"A": "1", "B": text}])))


def test_times() -> None:
    texts = {"1-02:03:04": 93_784, "2:00:00": 7200, "29:57": 1797, "00:01.250": 1.25}
    assert {text: seconds(text) for text in texts} == texts
    assert {seconds(text) for text in ("UNLIMITED", "INVALID", "NOT_SET", "", "12")} == {None}
    assert [moment(text) for text in ("1800000000", "0", "N/A", "Unknown")] == [1_800_000_000, None, None, None]


def test_numbers_and_sizes() -> None:
    assert [count(text) for text in ("3", "3-5", "12+", "N/A", "")] == [3, 3, 12, 0, 0]
    assert [size(text) for text in ("1843200", "512M", "1.50K", "1?", "")] == [1_843_200, 512 << 20, 1536, None, None]
    assert size("4", MEBIBYTE) == 4 << 20


def test_an_amount_that_is_no_number_is_more_than_there_is() -> None:
    assert amounts("cpu=2,mem=1?,node=") == {"cpu": 2, "mem": math.inf}
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


def test_names_in_a_host_list() -> None:
    assert expand("") == ()
    for huge in ("gpu-[0-99999999]", f"gpu-[{'0' * 4300}-65000]"):
        with pytest.raises(ValueError, match="no nodes of a cluster"):
            expand(huge)
    assert expand("gpu-[09-10]") == ("gpu-09", "gpu-10")
    assert expand("gpu-[0-1,3],cpu-0") == ("cpu-0", "gpu-0", "gpu-1", "gpu-3")


def test_nodes_that_pending_jobs_ask_for_and_that_completing_jobs_had() -> None:
    jobs = [{"job_resources": {"nodes": {"list": "gpu-[4-5]"}}}, {"job_resources": {}}]
    found = wanted_nodes("(null)\ngpu-[0-1]\n(null)\ngpu-1,cpu-3\n", json.dumps({"jobs": jobs}))
    assert found == {"gpu-0", "gpu-1", "cpu-3", "gpu-4", "gpu-5"}


JOBS = JobList(
    "id", "user", "partitions", "state", "reason", "node_list", "left", "limit", "min_nodes", "eligible",
)  # fmt: skip


def read(**columns: str) -> Job:
    (found,) = JOBS.read(printed(JOBS.shell, [columns]))
    return found


def test_what_squeue_prints_is_understood() -> None:
    array = read(
        JobArrayID="5_[1,5,9]", State="PENDING", Reason="Resources", NodeList="", Partition="main,old",
        TimeLeft="1-00:00:00", TimeLimit="1-00:00:00", NumNodes="2-4", EligibleTime="1800000000",
    )  # fmt: skip
    assert (array.waits, array.tasks, array.nodes, array.partitions) == (True, 3, (), ("main", "old"))
    assert (array.left, array.limit, array.min_nodes) == (86_400, 86_400, 2)
    assert array.eligible == 1_800_000_000
    runs = read(NodeList="gpu-[2,7]", TimeLeft="29:57", TimeLimit="30:00")
    assert (runs.waits, runs.nodes, runs.left, runs.limit) == (False, ("gpu-2", "gpu-7"), 1797, 1800)
    assert (runs.reason, runs.eligible) == ("", None)
    assert read(TimeLeft="INVALID", TimeLimit="1:00").left == 0, "it is past its limit"


@pytest.mark.parametrize(
    ("left", "limit"), [("364-23:59:44", "365-00:00:00"), ("UNLIMITED", "UNLIMITED"), ("INVALID", "NOT_SET")]
)
def test_no_limit_is_none_and_so_is_the_year_that_backfill_gives_in_place_of_it(left: str, limit: str) -> None:
    started = read(TimeLeft=left, TimeLimit=limit)
    assert (started.left, started.limit) == (None, None)


def test_what_a_user_writes_makes_no_job_and_hides_none() -> None:
    forged = printed(JobList("id", "user").shell, [{"JobArrayID": "1", "UserName": "alice"}])
    jobs = list(JOBS.read(printed(JOBS.shell, [{"ReqNodes": f"x{forged}"}, {"JobArrayID": "9"}])))
    assert [job.id for job in jobs] == ["7", "9"]
    with pytest.raises(NotUnderstoodError):
        list(JOBS.read(printed(JOBS.shell, [{}])[:-9]))
