"""Ten clusters of other people's, as stack files: what is taken, and what is told."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cli.app import main
from cli.errors import Failure
from cli.importing.convert import convert
from cli.importing.draft import Draft
from cli.importing.files import hosts, read_lines, value_in
from cli.importing.keys import ALIASES
from cli.importing.nodes import read_nodes
from config.cluster import ClusterConfig
from config.load import load_stack_file
from slurm.conf import effective_settings, partition_lines
from slurm.sizing import memory_for, real_memory_mib

DATA = Path(__file__).parent / "data"
GPUS = ("resources", "gpus")
CASES = sorted(path.name for path in DATA.iterdir())


@dataclass(frozen=True)
class Case:
    """One cluster after the import."""

    text: str
    draft: Draft
    config: ClusterConfig

    def why(self, place: str, key: str) -> str:
        """What is said of a key in a line, `slurm.conf:3`; empty where nothing is."""
        return " | ".join(
            why for one, why in self.draft.left if f"{Path(one.file).name}:{one.line}" == place and one.key == key
        )


def case(name: str, tmp_path: Path) -> Case:
    directory = DATA / name
    others = [path if (path := directory / other).exists() else None for other in ("gres.conf", "accounts.dump")]
    text, draft = convert(directory / "slurm.conf", *others)
    file = tmp_path / "Pulumi.test.yaml"
    file.write_text(text, encoding="utf-8")
    return Case(text, draft, load_stack_file(file))


TOLD: dict[str, dict[tuple[str, str], str]] = {
    "deepops": {
        ("slurm.conf:20", "Prolog"): "slurmstack:health",
        ("slurm.conf:23", "PropagateResourceLimitsExcept"): "write PropagateResourceLimits with those",
        ("slurm.conf:31", "SlurmctldLogFile"): "slurmstack logs",
        ("slurm.conf:38", "Sockets"): "jobs are given each by itself",
    },
    "openhpc": {
        ("slurm.conf:3", "ControlMachine"): "hosts are pods",
        ("slurm.conf:9", "FastSchedule"): "has dropped it",
        ("slurm.conf:11", "SelectType"): "for whole nodes set OverSubscribe: EXCLUSIVE",
        ("slurm.conf:22", "NodeName"): "write what there is",
        ("accounts.dump:3", "GrpTRES"): "no pool has GPUs",
        ("accounts.dump:3", "MaxJobsAccruePU"): "sacctmgr",
        ("accounts.dump:13", "User"): "no uid in a dump: write `id -u` into the comment at the stack file's end; set "
        "with sacctmgr: Fairshare=1, MaxWallDurationPerJob=60",
    },
    "eighty": {
        ("slurm.conf:6", "AccountingStorageEnforce"): "declare them in slurmstack:accounts",
        ("slurm.conf:90", "AllowGroups"): "declare it in groups",
    },
    "manual": {
        ("slurm.conf:2", "SlurmctldHost"): "hosts are pods",
        ("slurm.conf:3", "SlurmctldHost"): "hosts are pods",
        ("slurm.conf:21", "TmpFS"): "worker_nodes.<pool>.tmp",
        ("slurm.conf:30", "DownNodes"): "drain them with scontrol",
    },
    "configurator": {("slurm.conf:7", "SlurmctldPidFile"): "bound to how the pods are made"},
    "included": {
        ("slurm.conf:6", "killwait"): "another one holds",
        ("slurm.conf:8", ""): "not understood",
        ("nodes.conf:5", "NodeName"): "no node yet",
        ("partitions.conf:2", "PartitionName"): "no node",
    },
    "node_sets": {
        ("slurm.conf:3", "SuspendProgram"): "nodes come and go",
        ("slurm.conf:5", "Feature"): "no feature",
        ("slurm.conf:12", "PartitionName"): "it became p-all",
    },
    "gpus": {
        ("slurm.conf:5", "Gres"): "mps is no GPU",
        ("slurm.conf:7", "Gres"): "licenses count other things",
        ("slurm.conf:8", "Gres"): "cannot share evenly",
        ("slurm.conf:10", "Gres"): "shard is no GPU of the node",
        ("gres.conf:2", "NodeName"): "another one holds",
    },
    "preempting": {
        ("slurm.conf:7", "JobSubmitPlugins"): "slurmstack:job_submit",
        ("slurm.conf:11", "Default"): "another one holds",
        ("slurm.conf:11", "PreemptMode"): "'gang,requeue' is not one of the allowed values",
        ("slurm.conf:12", "QOS"): "not a QOS",
    },
    "laptop": {("slurm.conf:3", "NodeName"): "localhost has 1Gi"},
}


@pytest.mark.parametrize("name", CASES)
def test_the_stack_file_is_valid_and_what_is_left_has_its_line_and_a_reason(name: str, tmp_path: Path) -> None:
    one = case(name, tmp_path)
    assert {key: one.why(*key) for key, said in TOLD[name].items() if said not in one.why(*key)} == {}
    for said, _ in one.draft.left:
        line = Path(said.file).read_text(encoding="utf-8").split("\n")[said.line - 1 :]
        assert said.key.lower() in "\n".join(line[:3]).lower()


@pytest.mark.parametrize("name", CASES)
def test_the_pools_have_as_many_nodes_of_each_kind_as_the_old_cluster(name: str, tmp_path: Path) -> None:
    words = [{pair.key.lower(): pair for pair in pairs} for pairs in read_lines(DATA / name / "slurm.conf")]
    lines = [{ALIASES.get(key, key): pair for key, pair in line.items()} for line in words]
    nodes = read_nodes(lines, [], Draft()).values()
    had = Counter(
        (
            node.pool["resources", "cpus"],
            int(value_in(node.options, "realmemory") or 0),
            node.pool.get(GPUS, {}).get("count", 0),
        )
        for node in nodes
    )
    has: Counter[tuple[int, int, int]] = Counter()
    for pool in case(name, tmp_path).config.worker_nodes.values():
        there = pool.resources
        memory = next(memory for cpus, memory, _ in had if memory_for(memory or cpus * 1024) == there.memory)
        has[there.cpus, memory, there.gpus.count] += pool.most
    assert has == had


def sections(config: ClusterConfig, name: str) -> dict[str, Any]:
    return {key: value.model_dump(exclude_unset=True) for key, value in getattr(config, name).items()}


def test_nodes_that_are_alike_become_one_pool_unless_partitions_divide_them(tmp_path: Path) -> None:
    config = case("manual", tmp_path).config
    assert {name: (pool.size, pool.tmp) for name, pool in config.worker_nodes.items()} == {
        "dev": (17, "64000Mi"),
        "dev2": (9, "64000Mi"),
    }
    assert sections(config, "partitions")["debug"] == {
        "pools": ("dev",), "default": True, "max_time": "30", "settings": {"MaxNodes": 10},
    }  # fmt: skip


def test_eighty_partitions_keep_their_nodes_and_options(tmp_path: Path) -> None:
    config = case("eighty", tmp_path).config
    lines = {line.name: line for line in partition_lines(config)}
    assert len(lines) == 80
    sizes = {name: sum(config.worker_nodes[pool].most for pool in line.node_sets) for name, line in lines.items()}
    assert (sizes["standard"], sizes["std.q"], sizes["grp78"]) == (200, 160, 2)
    assert (lines["grp78"].option("MaxTime"), lines["standard"].option("MaxTime")) == ("14-0", "7-00:00:00")
    assert config.slurm.settings["PriorityWeightFairshare"] == 200000


def test_a_weight_is_the_pool_s(tmp_path: Path) -> None:
    one = case("eighty", tmp_path)
    assert {(pool.features, pool.weight) for pool in one.config.worker_nodes.values()} == {
        (("skylake",), 10), (("rome",), 20),
    }  # fmt: skip
    assert not one.why("slurm.conf:9", "Weight")


def test_settings_that_are_ours_anyway_are_left_out(tmp_path: Path) -> None:
    assert dict(case("configurator", tmp_path).config.slurm.settings) == {
        "MpiDefault": "none",
        "ReturnToService": 1,
        "SlurmdTimeout": 300,
    }
    assert set(case("deepops", tmp_path).config.slurm.settings) == {
        "LaunchParameters", "SlurmctldTimeout", "SelectTypeParameters", "SlurmctldDebug",
    }  # fmt: skip


def test_included_files_continued_lines_and_keys_in_any_case(tmp_path: Path) -> None:
    one = case("included", tmp_path)
    assert "\n      KillWait: 45\n" in one.text  # one a line
    config = one.config
    settings = effective_settings(config)
    assert (settings["SchedulerParameters"], settings["KillWait"]) == ("bf_continue,bf_interval=30", "45")
    assert {name: (pool.size, pool.resources.cpus) for name, pool in config.worker_nodes.items()} == {
        "login2": (1, 8),
        "r": (6, 8),
    }


def test_names_of_pools_are_kubernetes_own_and_no_feature_of_others(tmp_path: Path) -> None:
    config = case("node_sets", tmp_path).config
    assert list(config.worker_nodes) == ["node-a", "node-b2", "cpu", "burst"]
    assert config.worker_nodes["burst"].size.model_dump() == {"min": 0, "max": 50}  # type: ignore[union-attr]
    assert config.partitions["mpi"].pools == ("node-a",)
    assert config.partitions["cpu"].pools == ("node-a", "node-b2", "cpu")


def test_gpus_have_their_types_counts_and_shares(tmp_path: Path) -> None:
    pools = case("gpus", tmp_path).config.worker_nodes
    found = {name: pools[name].resources.gpus for name in ("h", "a", "t", "mi")}
    assert (found["h"].type, found["h"].count, found["h"].shard) == ("h100", 8, 32)
    assert (found["a"].type, found["a"].count) == ("A100", 4)
    assert (found["t"].type, found["t"].count) == ("t4", 2)
    assert (found["mi"].vendor, found["mi"].count, found["mi"].shard) == ("amd", 8, None)


def test_gpus_of_several_types_are_found_in_either_file(tmp_path: Path) -> None:
    one = case("gpus", tmp_path)
    found = {name: (pool.gpu_kinds, pool.confinement) for name, pool in one.config.worker_nodes.items()}
    assert found["w"] == ({"gtx970": 1, "gtx1060": 1}, "required")
    assert found["y"] == ({"K20": 1, "K40": 2}, "required")
    assert not one.why("slurm.conf:6", "Gres")


def test_preemption_licenses_and_topology_become_sections(tmp_path: Path) -> None:
    config = case("preempting", tmp_path).config
    assert (config.preemption.type, config.preemption.mode) == ("partition", "suspend")
    assert config.licenses == {"matlab": 10, "ansys": 5}
    assert config.topology.plugin == "tree"
    partitions = config.partitions
    assert [(name, one.priority_tier, one.preempt_mode, one.default) for name, one in partitions.items()] == [
        ("low", None, None, False),
        ("high", 100, "off", True),
        ("old", 7, None, False),
    ]


def test_accounts_and_qos_come_from_the_dump_and_users_wait_for_their_numbers(tmp_path: Path) -> None:
    one = case("openhpc", tmp_path)
    assert sections(one.config, "accounts") == {
        "physics": {
            "description": "physics dept.", "organization": "science", "fairshare": 20, "qos": ("normal", "high"),
        },
        "chem": {
            "description": "chem", "organization": "science", "fairshare": "parent",
            "grp_tres": {"cpu": 64, "mem": 102400},
        },
        "theory": {
            "parent": "physics", "description": "theory", "organization": "science", "fairshare": 1, "max_jobs": 10,
        },
    }  # fmt: skip
    high = one.config.qos["high"]
    assert (high.max_wall, high.priority, high.preempt_exempt_time) == ("1440", 100, "1:30")
    assert one.config.partitions["normal"].allow_accounts == ("physics",)
    assert one.config.accounting.enforce == ("associations", "limits", "qos", "safe")
    assert "  #   ada: {uid: ..., accounts: [physics, theory]}" in one.text
    assert one.config.users == {}


@pytest.mark.parametrize("real_memory", [1, 128, 2000, 6272, 31000, 64000, 1031000, 2063837])
def test_a_worker_has_the_memory_for_jobs_that_the_node_had_and_hardly_more(real_memory: int) -> None:
    assert 0 <= real_memory_mib(memory_for(real_memory)) - real_memory <= max(1, 128 - real_memory)


def test_host_lists_with_several_ranges() -> None:
    assert hosts("n[08-10],x") == ["n08", "n09", "n10", "x"]
    assert hosts("r[0-1]n[1,3]-ib") == ["r0n1-ib", "r0n3-ib", "r1n1-ib", "r1n3-ib"]


@pytest.mark.parametrize("listed", ["n[1-9999999999]", "r[1-9999]n[1-9999]", "n[1-4", "n1-4]", "n[1,4-1]", "n[x-y]"])
def test_a_host_list_without_an_end_or_a_bracket_is_no_list(listed: str) -> None:
    assert hosts(listed) == [listed]


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "slurm.conf"
    path.write_text(text, encoding="utf-8")
    return path


def test_reasons_that_differ_in_a_name_alone_are_told_once(tmp_path: Path) -> None:
    partitions = [f"PartitionName=p{n} Nodes=n AllowAccounts=a{n}" for n in range(60)]
    lines = ["NodeName=n CPUs=1 RealMemory=2000", *partitions, "Licenses=a@x:1,b@x:1"]
    _, draft = convert(written(tmp_path, "\n".join(lines)), None, None)
    licenses, told = draft.told()
    assert "'a@x' is not a name" in licenses
    assert "'b@x' is not a name" in licenses
    assert "slurm.conf:2: AllowAccounts=a0: 'a0' is not an account of slurmstack:accounts" in told
    assert told.endswith("(likewise in lines 3-61)")


def test_of_two_that_exclude_each_other_the_one_that_slurm_passes_over_is_left_and_nothing_else(tmp_path: Path) -> None:
    options = "AllowGroups=g MaxNodes=2 AllowQos=normal DenyQos=x PriorityTier=9"
    text = f"NodeName=n CPUs=1 RealMemory=2000\nPartitionName=p Nodes=n {options}"
    _, draft = convert(written(tmp_path, text), None, None)
    assert "DenyQos" in {said.key for said, _ in draft.left}
    assert draft.sections["partitions"]["p"]["priority_tier"] == 9
    assert "settings" in draft.sections["partitions"]["p"]


def test_what_is_refused_of_a_partition_leaves_one_whose_name_goes_on_alone(tmp_path: Path) -> None:
    lines = [
        "NodeName=n CPUs=1",
        "PartitionName=std Nodes=n AllowQos=a DenyQos=b",
        "PartitionName=std.q Nodes=n MaxTime=5",
    ]
    _, draft = convert(written(tmp_path, "\n".join(lines)), None, None)
    partitions = draft.sections["partitions"]
    assert partitions == {"std": {"pools": ["n"]}, "std.q": {"pools": ["n"], "max_time": "5"}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ClusterName=x\n", "has no node"),
        ("N\0o\0d\0e\0", "has no node"),
        ("Include slurm.conf\n", "includes itself"),
        ("Include other.conf\n", "slurm.conf:1 includes other.conf, which is not there"),
        ("Include parts/*.conf\n", r"slurm.conf:1 includes parts/\*.conf, but Slurm takes no \*"),
        ("\nNodeName=n[1-4 CPUs=8", r"slurm.conf:2: NodeName=n\[1-4: .* n\[1-4 is no list"),
        ('NodeName="n CPUs=1', 'slurm.conf:1: NodeName="n CPUs=1: .* quotes in pairs'),
        ("NodeName=n CPUs=abc", "slurm.conf:1: NodeName=n: .* CPUs=abc is no number"),
        ("NodeName=n CPUs=1 RealMemory=-5", "slurm.conf:1: NodeName=n: .* RealMemory=-5 is no number"),
    ],
)
def test_one_message_where_there_is_nothing_to_go_by(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(Failure, match=said):
        convert(written(tmp_path, text), None, None)


def test_a_line_of_megabytes_is_read_at_once(tmp_path: Path) -> None:
    begun = time.process_time()
    ((word,),) = read_lines(written(tmp_path, "x" * 2_000_000))
    assert (word.key, len(word.value)) == ("", 2_000_000)
    assert time.process_time() - begun < 5, "it took hours"


def test_lines_have_the_number_of_the_first_that_they_continue(tmp_path: Path) -> None:
    lines = read_lines(written(tmp_path, 'A=1 # B=2\n\nC=3 \\\n D=4\nE="x y"\n'))
    assert [(pairs[0].line, tuple((said.key, said.value) for said in pairs)) for pairs in lines] == [
        (1, (("A", "1"),)),
        (3, (("C", "3"), ("D", "4"))),
        (5, (("E", "x y"),)),
    ]


@dataclass(frozen=True)
class Done:
    """How the command ended."""

    status: object
    out: str
    err: str


Command = Callable[..., Done]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["slurmstack", *words])
        with pytest.raises(SystemExit) as end:
            main()
        return Done(end.value.code, *capsys.readouterr())

    return run


LAPTOP = str(DATA / "laptop/slurm.conf")


def test_the_command_writes_a_file_once_and_tells_on_standard_error(command: Command, tmp_path: Path) -> None:
    output = tmp_path / "Pulumi.old.yaml"
    done = command("import", LAPTOP, "--output", str(output))
    assert (done.status, done.out) == (0, "")
    assert f"{LAPTOP}:2: SlurmctldHost=localhost: hosts are pods here" in done.err
    assert load_stack_file(output).worker_nodes["localhost"].size == 1

    output.write_text("mine\n", encoding="utf-8")
    refused = command("import", LAPTOP, "--output", str(output))
    assert (refused.status, output.read_text(encoding="utf-8")) == (1, "mine\n")
    assert "--force" in refused.err
    assert command("import", LAPTOP, "--output", str(output), "--force").status == 0
    assert "localhost:" in output.read_text(encoding="utf-8")


def test_json_has_both_lists_and_standard_output_the_file(command: Command) -> None:
    document = json.loads(command("import", LAPTOP, "--json").out)
    assert document["stack"] == command("import", LAPTOP).out
    keys = {"NodeName", "CPUs", "PartitionName", "Nodes", "ClusterName", "Default"}
    assert {entry["key"] for entry in document["taken"]} == keys
    first = {"file": LAPTOP, "line": 3, "key": "NodeName", "value": "localhost"}
    assert {key: document["left"][0][key] for key in first} == first


def test_a_file_that_is_not_there_is_status_1(command: Command, tmp_path: Path) -> None:
    done = command("import", str(tmp_path / "none.conf"))
    assert (done.status, done.out) == (1, "")
    assert "none.conf cannot be read: No such file or directory" in done.err


def test_what_is_not_understood_is_shown_as_written_and_what_slurm_alone_knows_is_listed(
    command: Command, tmp_path: Path
) -> None:
    odd = 'NodeName  a CPUs=2\n=x y\nMinJobAge="4 5\nPartitionName=p Nodes=n stray MaxTime=5\n'
    file = written(
        tmp_path, f"NodeName=n CPUs=1 RealMemory=2000\n{odd}SlurmdTimout=5\nMpiParams=ports=1-9\nKillWait=45\n"
    )
    done = command("import", str(file))
    *lines, misspelt, taken = done.err.splitlines()
    assert lines[1:] == [
        f"{file}:{line}: is not understood: slurm.conf has KEY=VALUE, and quotes in pairs"
        for line in ("2: NodeName a CPUs=2", "3: =x y", '4: MinJobAge="4 5', "5: stray")
    ]
    assert misspelt == f"{file}:6: SlurmdTimout=5: is no key of slurm.conf; did you mean 'SlurmdTimeout'?"
    assert taken == "settings, which Slurm itself tries at `up`: KillWait, MpiParams"
    assert "max_time: '5'" in done.out
