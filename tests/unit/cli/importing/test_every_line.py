"""Each line of the old files, and each word of it, is in the stack file or in the list of what is not."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from cli.errors import Failure
from cli.importing.convert import convert
from cli.importing.draft import Draft
from config.load import load_stack_file

NODES = "NodeName=n[1-2] CPUs=4 RealMemory=4000"
CLOUD = "NodeName=c[1-3] CPUs=4 RealMemory=4000 State=CLOUD"


def made(folder: Path, conf: str, gres: str = "", dump: str = "") -> tuple[str, Draft]:
    for name, text in {"slurm.conf": conf, "gres.conf": gres, "dump": dump}.items():
        (folder / name).write_text(text, encoding="utf-8")
    return convert(folder / "slurm.conf", folder / "gres.conf", folder / "dump")


def why(draft: Draft, line: int, key: str) -> str:
    return " | ".join(why for said, why in draft.left if (said.line, said.key) == (line, key))


@pytest.mark.parametrize(
    ("line", "key", "said"),
    [
        ("NodeName=n[2-3] CPUs=8", "NodeName", "another one holds"),
        ("NodeName= CPUs=4", "NodeName", "CPUs=4 is no list"),
        ("NodeName=m State=DOWN CPUs=4", "State", "nodes begin idle"),
        ("NodeName=DEFAULT State=CLOUD", "State", "use an elastic pool"),
        ("NodeName=m CPUs=4 Gres=gpu:H100_1g.10gb:7,gpu:H100:4", "Gres", "resources.gpus.mig parts of GPUs"),
        ("Licenses=matlab:10;big:2K;remote@srv:3;ansys", "Licenses", "'2K' is not a whole number"),
        ("TaskPlugin=task/cgroup", "TaskPlugin", "workers use cgroups where they can"),
        ("Include=parts/nodes.conf", "Include", "is no key: slurm.conf has `Include FILE`"),
        ("NodeName=m CPUs=4 CPUs=8", "CPUs", "another one holds"),
        ("NodeName=m NodeName=k CPUs=8", "NodeName", "another one holds"),
        ("NodeName=m CPUs=4 TmpDisk=50", "TmpDisk", "too little"),
        ("NodeName=DEFAULT Weight=7", "Weight", "has no effect"),
        ("CPUs=4 NodeName=m", "CPUs", "is no key of slurm.conf"),
        ("PartitionName=p Nodes=n1 MaxTime=5", "PartitionName", "another one holds"),
        ("PartitionName=q Nodes=n[1-2],n[8-9]", "Nodes", "n[8-9] is no node"),
        ("PartitionName=q Nodes=n1 Default=maybe", "Default", "has no effect"),
        ("PartitionName=q Nodes=n[2-1]", "Nodes", "n[2-1] is no node"),
        ("PartitionName=q Nodes=n1 MaxTime=99999-0", "MaxTime", "more than Slurm can count"),
        (f"PartitionName=q Nodes=c1 ResumeTimeout=900\nResumeTimeout=600\n{CLOUD}", "ResumeTimeout", "elastic pool"),
        ("PartitionName=a+b Nodes=n1", "PartitionName", "it became a-b"),
        ("PartitionName= Nodes=n1", "PartitionName", "has no node"),
        ("NodeSet=unused Nodes=n1", "NodeSet", "partitions are over pools"),
        ("NodeSet=empty Feature=none\nPartitionName=q Nodes=empty,n1", "NodeSet", "partitions are over pools"),
        ("FrontendName=x FrontendAddr=y", "FrontendName", "has dropped it"),
        ("DownNodes=n1 State=DOWN", "DownNodes", "drain them with scontrol"),
        ("KillWait=45 MinJobAge=500", "MinJobAge", "has no effect"),
        ("ClusterName=my.lab", "ClusterName", "is not allowed"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_taken_is_listed_with_its_reason(tmp_path: Path, line: str, key: str, said: str) -> None:
    _, draft = made(tmp_path, f"{NODES}\nPartitionName=p Nodes=n2\n{line}\n")
    assert said in why(draft, 3, key)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("NodeName=absent Name=gpu Type=a Count=2", "has no effect"),
        ("NodeName=n[1 Name=gpu Type=a Count=2", "has no effect"),
        ("Name=gpu File=/dev/nvidia0", "slurmd finds the devices"),
    ],
)
def test_a_line_of_gres_conf_costs_no_node_and_is_listed(tmp_path: Path, line: str, said: str) -> None:
    text, draft = made(tmp_path, f"{NODES} Gres=gpu:4\n", f"Name=gpu Type=a Count=4\n{line}\n")
    assert said in why(draft, 2, line.partition("=")[0])
    assert "type: a" in text


def test_what_is_good_of_a_list_is_taken_where_the_rest_is_refused(tmp_path: Path) -> None:
    nodes = "NodeName=n CPUs=4 Gres=gpu:1g.10gb:7,gpu:H100:4\nNodeName=s CPUs=4 Gres=gpu:a100:2,shard:a100:1K"
    _, draft = made(tmp_path, f"{nodes}\nLicenses=matlab:10;big:2K;remote@srv:3,ansys\n")
    pools = draft.sections["worker_nodes"]
    assert pools["n"]["resources"]["gpus"] == {"count": 4, "type": "H100"}
    assert pools["s"]["resources"]["gpus"] == {"count": 2, "type": "a100", "shard": 1024}
    assert draft.sections["licenses"] == {"matlab": 10, "ansys": 1}


def test_nobody_without_a_name_becomes_a_user(tmp_path: Path) -> None:
    text, draft = made(tmp_path, NODES, dump="Parent - 'root'\nUser - '':DefaultAccount='a':Fairshare=1\n")
    assert "slurmstack:users" not in text
    assert [why for _, why in draft.left] == ["is no line that sacctmgr dump writes"]


def test_limits_of_the_root_of_all_accounts_are_listed(tmp_path: Path) -> None:
    _, draft = made(tmp_path, NODES, dump="Cluster - 'x':Fairshare=1:GrpJobs=9\n")
    assert [(said.text, why) for said, why in draft.left] == [
        ("Cluster=x", "has what holds for the root of all accounts: set it with sacctmgr")
    ]


def test_a_partition_over_cloud_nodes_is_over_an_elastic_pool_with_their_times(tmp_path: Path) -> None:
    power = "SuspendProgram=/s\nResumeProgram=/r\nSuspendTime=600\nResumeTimeout=300\nSuspendExcStates=DOWN"
    text, draft = made(tmp_path, f"{power}\n{CLOUD}\nPartitionName=p Nodes=c[1-3] SuspendTime=60 MaxTime=1-99:99:99\n")
    (tmp_path / "Pulumi.x.yaml").write_text(text, encoding="utf-8")
    config = load_stack_file(tmp_path / "Pulumi.x.yaml")
    pool = config.worker_nodes["c"]
    assert (pool.is_elastic, pool.most, pool.idle_timeout, pool.resume_timeout) == (True, 3, "600s", "300s")
    assert (config.partitions["p"].pools, config.partitions["p"].max_time) == (("c",), "1-99:99:99")
    assert "elastic pool" in why(draft, 7, "SuspendTime")
    assert "starts and ends the nodes" in why(draft, 5, "SuspendExcStates")


def test_a_byte_order_mark_dos_lines_and_a_last_backslash_are_no_part_of_a_value(tmp_path: Path) -> None:
    (plain, _), (odd, draft) = (
        made(tmp_path, text)
        for text in (f"ClusterName=x\n{NODES}\nKillWait=45\n", f"\ufeffClusterName=x\r\n{NODES}\r\nKillWait=45 \\")
    )
    assert (odd, draft.left) == (plain, [])


LINES = (
    "NodeName=a[{n}-{m}] CPUs=1{n} RealMemory=4{n}00 Feature=f{n} Weight={n}", "NodeName=b{n} Sockets=2 TmpDisk=2{n}00",
    "NodeName=b{n} State=DOWN Gres=gpu:{n}", "NodeName=c{n} State=CLOUD Procs=3{n} CPUs=4{n}", "NodeName=b[{m}-{n}]",
    "NodeName=DEFAULT Weight=3{n} RealMemory=1{n}00", "NodeName= CPUs=4", "NodeName=e{n} CPUs=x State=FUTURE",
    "NodeSet=s{n} Feature=f{n}", "NodeSet=s{n} Nodes=b{m} Other=1", 'PartitionName="p{n} Nodes=ALL', "stray {n}",
    "PartitionName=p{n} Nodes=a[{n}-{m}],b{n} MaxTime=9{n} MaxTime=8{n}", "PartitionName=q{n} Nodes=s{n},s{m},n1 QOS=x",
    "PartitionName=p{n} Nodes=ALL Default=YES DefaultTime={n}-99:99", "PartitionName=DEFAULT MaxTime=7{n} GraceTime=9",
    "KillWait=4{n}", "MinJobAge=50{n} Extra=1", "SuspendTime=60{n}", "Licenses=x:{n}", "Prolog=/x", "UsePAM=1",
)  # fmt: skip
OF_DEVICES = (
    "NodeName=b{n} Name=gpu Type=t{n} Count={n}", "Name=gpu Type=u{m} Count={m} Cores={n}", "NodeName=b[2-1] Type=t",
    "Name=gpu File=/dev/nvidia{n}", "AutoDetect=nvml", "NodeName=b{n} AutoDetect=rsmi",
)  # fmt: skip


def text_of(folder: Path, files: list[list[str]]) -> tuple[str, Draft]:
    try:
        return made(folder, *map("\n".join, files))
    except Failure as error:
        return str(error), Draft()


@pytest.mark.parametrize("seed", range(10))
def test_without_a_word_the_stack_file_is_another_or_the_word_is_listed(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    lines = [[NODES, *dice.choices(LINES, k=9)], dice.choices(OF_DEVICES, k=3)]
    files = [[*dict.fromkeys(line.format(n=(n := dice.randint(1, 3)), m=n + 1) for line in some)] for some in lines]
    text, draft = text_of(tmp_path, files)
    same = (said for line in draft.read for said in line if draft.is_default(said))
    told = {(Path(said.file).name, said.line, said.text) for said in [*same, *(said for said, _ in draft.left)]}
    silent = []
    for own, name in zip(files, ("slurm.conf", "gres.conf"), strict=True):
        for at, line in enumerate(own):
            first, *others = line.split(" ")
            told_as = {line, line.replace(" ", ""), first}
            for word in (first, *others):
                # The first word goes with its line. Of one type, Count says once more what Gres says.
                listed = {(name, at + 1, said) for said in told_as | ({word} if word != first else {*others})} & told
                own[at] = " ".join([first, *(other for other in others if other != word)]) if word != first else ""
                if not listed and word[:6] != "Count=" and text_of(tmp_path, files)[0] == text:
                    silent.append(f"{name}:{at + 1}: {word} in {line}")
            own[at] = line
    assert silent == [], "\n".join([*files[0], "--", *files[1], text.partition("worker_nodes")[2]])
