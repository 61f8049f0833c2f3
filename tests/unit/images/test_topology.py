"""Slurm's switch tree: how it is written, and when it is read again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import slurm.topology
from images.common.command import NO_PROGRAM, Result
from images.common.slurm_node import TOPOLOGY_REASON, Node
from images.controller.agent import Agent, initial_status
from images.controller.check import Verdict
from images.controller.node_list import NodeList, parse_nodes
from images.controller.publish import Files, Store, config_hash, stack_part, version_of
from images.controller.scratch_config import Scratch, scratch_files
from images.controller.server import StatusBoard
from images.controller.topology import (
    LABELS_FILE,
    LONGEST_NAME,
    TOPOLOGY_CONF,
    host_list,
    label_keys,
    path_of,
    render,
    switch_name,
)
from images.controller.topology import Path as SwitchPath
from images.controller.topology_places import Places, labels_of, node_of
from images.controller.topology_rounds import (
    LONGEST_SETTLE_SECONDS,
    PATIENCE_SECONDS,
    REMOVAL_SECONDS,
    SPACING_SECONDS,
    TopologyKeeper,
    waits,
)
from images.worker.slurmd import lift_own_drain
from images.worker.topology import ASK_TIMES, waits_for_place
from tests.fakes.commands import FakeClock, FakeRunner

A, B = ("core", "a"), ("core", "b")


def expand(text: str) -> list[str]:
    """The names of a host list, as Slurm reads it."""
    names: list[str] = []
    depth, word = 0, ""
    for character in [*text, ","]:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            prefix, _, ranges = word.rstrip("]").partition("[")
            for part in ranges.split(",") if ranges else []:
                first, _, last = part.partition("-")
                names += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
            names += [] if ranges else [prefix]
            word = ""
        else:
            word += character
    return names


def tree(text: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Nodes of each leaf switch, and switches below each other one."""
    leaves: dict[str, list[str]] = {}
    inner: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, children = line.removeprefix("SwitchName=").split(" ")
            kind, _, listed = children.partition("=")
            assert name not in leaves.keys() | inner.keys(), f"{name} twice"
            (leaves if kind == "Nodes" else inner)[name] = expand(listed)
    return leaves, inner


# ---------------------------------------------------------------- the tree


def test_nodes_hang_below_their_switches_and_one_root_joins_all() -> None:
    places: dict[str, SwitchPath] = {"gpu-0": A, "gpu-1": A, "gpu-2": B, "cpu-0": ()}
    assert render(places).splitlines()[1:] == [
        "SwitchName=core.a Nodes=gpu-[0-1]",
        "SwitchName=core.b Nodes=gpu-2",
        "SwitchName=unknown Nodes=cpu-0",
        "SwitchName=core Switches=core.a,core.b",
        "SwitchName=root Switches=core,unknown",
    ]


def test_the_order_in_which_nodes_are_told_changes_nothing() -> None:
    places: dict[str, SwitchPath] = {f"n-{number}": (f"s{number % 3}", f"l{number % 7}") for number in range(50)}
    assert render(places) == render(dict(reversed(places.items())))


def test_without_nodes_there_is_still_a_file_that_slurm_starts_with() -> None:
    leaves, inner = tree(render({}))
    assert leaves == {"unknown": ["none"]}
    assert inner == {"root": ["unknown"]}


def test_a_label_that_is_missing_alone_is_one_unknown_switch_on_the_way() -> None:
    assert path_of({"x": "core", "z": "leaf"}, ["x", "y", "z"]) == ("core", "unknown", "leaf")
    assert path_of({"other": "1"}, ["x", "y"]) == ()
    assert path_of({"x": "", "y": ""}, ["x", "y"]) == ()


def test_a_switch_keeps_its_name_when_others_come_and_go() -> None:
    alone = tree(render({"n-0": A}))[0]
    among = tree(render({"n-0": A, "n-1": B, "n-2": ("else", "a")}))[0]
    assert alone.items() <= among.items()


@pytest.mark.parametrize("path", [("root",), ("unknown",), ("a.b", "c"), ("x" * 63, "y" * 63)])
def test_a_name_that_could_be_taken_for_another_is_told_apart_by_a_digest(path: SwitchPath) -> None:
    name = switch_name(path)
    assert len(name) <= LONGEST_NAME
    assert name not in {"root", "unknown", "a.b.c"}
    assert name != switch_name((*path[:-1], path[-1][:-1] + "_"))


_VALUE = st.text("abC19._-", min_size=1, max_size=63)
_PATH = st.one_of(
    st.just(()), st.lists(st.one_of(_VALUE, st.sampled_from(["root", "unknown"])), min_size=1, max_size=4)
)


@given(st.dictionaries(st.integers(0, 400).map(lambda number: f"pool-{number}"), _PATH.map(tuple), max_size=40))
def test_the_tree_is_connected_and_has_each_node_once(places: dict[str, SwitchPath]) -> None:
    depth = max((len(path) for path in places.values()), default=0)
    places = {name: path + ("x",) * (depth - len(path)) if path else () for name, path in places.items()}

    leaves, inner = tree(render(places))

    assert sorted(node for nodes in leaves.values() for node in nodes) == sorted(places or ["none"])
    reached, waiting = set(), ["root"]
    while waiting:
        reached.add(waiting[-1])
        waiting += inner.get(waiting.pop(), [])
    assert reached == leaves.keys() | inner.keys()
    children = [child for below in inner.values() for child in below]
    assert len(children) == len(set(children)), "a switch below two others"


@given(
    st.sets(st.one_of(st.integers(0, 3000).map(lambda number: f"a-{number}"), st.sampled_from(["b", "n007", "c-1x"])))
)
def test_a_host_list_has_exactly_its_names(names: set[str]) -> None:
    assert sorted(expand(host_list(names))) == sorted(names) if names else host_list(names) == ""


def test_five_thousand_nodes_are_written_in_no_time_and_in_few_bytes() -> None:
    places: dict[str, SwitchPath] = {
        f"gpu-{number}": ("fabric", f"spine-{number // 320}", f"leaf-{number // 32}") for number in range(5000)
    }
    started = time.perf_counter()
    text = render(places)
    assert time.perf_counter() - started < 1
    assert len(text) < 20_000


# ---------------------------------------------------------------- where nodes are


class Copy:
    """What a follower has."""

    def __init__(self, values: Mapping[str, object], *, synced: bool = True) -> None:
        self.synced = synced
        self.content = dict(values)

    def values(self) -> dict[str, object]:
        return dict(self.content)


def test_a_node_is_where_the_machine_of_its_pod_is() -> None:
    pods, nodes = Copy({"gpu-0": "m1", "gpu-1": ""}), Copy({"m1": {"x": "a"}})
    assert Places(pods, nodes).of(["gpu-0", "gpu-1", "gpu-2"], ["x"]) == {"gpu-0": ("a",), "gpu-1": (), "gpu-2": ()}  # type: ignore[arg-type]


def test_a_node_that_is_being_replaced_keeps_its_place_until_the_new_one_is_known() -> None:
    pods, nodes = Copy({"gpu-0": "m1"}), Copy({"m1": {"x": "a"}})
    places = Places(pods, nodes)  # type: ignore[arg-type]
    places.of(["gpu-0"], ["x"])
    pods.content = {"gpu-0": ""}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("a",)}
    pods.content = {"gpu-0": "m2"}
    nodes.content = {"m2": {"x": "b"}}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ("b",)}


def test_labels_that_were_taken_away_take_the_place_away() -> None:
    pods, nodes = Copy({"gpu-0": "m1"}), Copy({"m1": {"x": "a"}})
    places = Places(pods, nodes)  # type: ignore[arg-type]
    places.of(["gpu-0"], ["x"])
    nodes.content = {"m1": {}}
    assert places.of(["gpu-0"], ["x"]) == {"gpu-0": ()}


def test_objects_without_what_is_looked_for_are_no_error() -> None:
    assert node_of({"metadata": {"name": "p"}}) == ""
    assert labels_of({"metadata": {"name": "n"}}) == {}


# ---------------------------------------------------------------- when it is read again


class World:
    """A slurmctld with node records, and a keeper that looks at it every second."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.places: dict[str, SwitchPath] = {}
        self.synced = True
        self.nodes: dict[str, str] = {}
        self.up = True
        self.files: dict[str, str] = {LABELS_FILE: "x\ny\n", TOPOLOGY_CONF: render({})}
        self.reloads: list[str] = []
        self.accepts = True
        self.undrained: list[str] = []
        self.refused: set[str] = set()
        self.log: list[str] = []
        self.node_list = NodeList(slurmctld=self, clock=self.clock)
        self.keeper = TopologyKeeper(
            locations=lambda: self, nodes=self.node_list, published=lambda: self.files, reload=self.reload,
            log=self.log.append, clock=self.clock,
        )  # fmt: skip

    def of(self, names: Iterable[str], keys: Iterable[str]) -> dict[str, SwitchPath]:
        assert tuple(keys) == ("x", "y")
        return {name: self.places.get(name, ()) for name in names}

    def nodes_text(self) -> str | None:
        lines = [
            f"NodeName={name} Arch=x86_64 State=IDLE{'+DRAIN' if reason else ''}+DYNAMIC_NORM Weight=1 "
            + (f"Reason={reason} [slurm@2026-01-01T00:00:00]" if reason else "")
            for name, reason in self.nodes.items()
        ]
        return "\n".join(lines) if self.up else None

    def delete_node(self, name: str) -> Result:
        raise AssertionError(name)

    def undrain(self, nodes: str) -> Result:
        names = expand(nodes)
        if self.refused & set(names):
            return Result(code=1, stderr="Invalid node name specified")
        self.undrained += names
        self.nodes.update(dict.fromkeys(names, ""))
        return Result(code=0)

    def reload(self, text: str) -> bool:
        self.reloads.append(text)
        if self.accepts:
            self.files = {**self.files, TOPOLOGY_CONF: text}
        return self.accepts

    def register(self, *names: str, path: SwitchPath = A) -> None:
        for name in names:
            self.nodes[name] = TOPOLOGY_REASON
            self.places[name] = path

    def run(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.keeper.round()
            self.clock.sleep(1)


@pytest.fixture
def world() -> World:
    return World()


def test_a_new_node_takes_jobs_only_after_slurm_has_read_its_place(world: World) -> None:
    world.register("n-0")
    world.run(2)
    assert not world.undrained
    world.run(3)
    assert tree(world.reloads[0])[0] == {"core.a": ["n-0"]}
    assert world.undrained == ["n-0"]


def test_nodes_that_come_one_after_the_other_are_read_in_one_go(world: World) -> None:
    for number in range(8):
        world.register(f"n-{number}")
        world.run(1)
    world.run(5)
    assert len(world.reloads) == 1
    assert len(world.undrained) == 8


def test_a_stream_of_nodes_that_never_ends_does_not_keep_the_first_waiting(world: World) -> None:
    for number in range(int(LONGEST_SETTLE_SECONDS) + 2):
        world.register(f"n-{number}")
        world.run(1)
    assert "n-0" in world.undrained


def test_reconfigurations_have_their_distance(world: World) -> None:
    times: list[float] = []
    for number in range(60):
        world.register(f"n-{number}")
        before = len(world.reloads)
        world.run(1)
        times += [world.clock.now()] * (len(world.reloads) - before)
    assert len(times) >= 3
    assert all(later - earlier >= SPACING_SECONDS for earlier, later in pairwise(times))


def test_a_record_that_was_made_again_is_read_although_the_file_is_the_same(world: World) -> None:
    world.register("n-0")
    world.run(5)
    world.run(20)
    world.register("n-0")
    world.run(5)
    assert len(world.reloads) == 2
    assert world.reloads[0] == world.reloads[1]
    assert world.undrained == ["n-0", "n-0"]


def test_a_relabelled_machine_moves_its_node(world: World) -> None:
    world.register("n-0")
    world.run(20)
    world.places["n-0"] = B
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"core.b": ["n-0"]}


def test_nothing_new_is_no_reconfiguration(world: World) -> None:
    world.register("n-0")
    world.run(200)
    assert len(world.reloads) == 1


def test_a_node_that_has_left_goes_with_the_next_change_or_after_a_while(world: World) -> None:
    world.register("n-0", "n-1")
    world.run(20)
    del world.nodes["n-1"]
    world.run(REMOVAL_SECONDS - 2)
    assert len(world.reloads) == 1
    world.run(5)
    assert tree(world.reloads[-1])[0] == {"core.a": ["n-0"]}


def test_other_drains_are_left_alone(world: World) -> None:
    world.nodes = {"n-0": "bad", "n-1": "slurmstack:waiting-for-topology-not"}
    world.run(20)
    assert not world.undrained


def test_a_node_that_has_left_meanwhile_does_not_keep_the_others(world: World) -> None:
    world.register("n-0", "n-1")
    world.refused = {"n-1"}
    world.run(5)
    assert world.undrained == ["n-0"]


def test_a_tree_that_slurm_does_not_take_lifts_no_drain_and_is_tried_again(world: World) -> None:
    world.accepts = False
    world.register("n-0")
    world.run(5)
    assert not world.undrained
    world.run(2 * SPACING_SECONDS)
    assert 2 <= len(world.reloads) <= 4
    world.accepts = True
    world.run(SPACING_SECONDS + 5)
    assert world.undrained == ["n-0"]


def test_before_the_api_has_answered_a_tree_from_before_stays(world: World) -> None:
    world.synced = False
    world.nodes = {"n-0": ""}
    world.files[TOPOLOGY_CONF] = before = render({"n-0": A})
    world.run(100)
    assert not world.reloads
    assert world.files[TOPOLOGY_CONF] == before


def test_without_the_api_a_new_node_takes_jobs_all_the_same(world: World) -> None:
    world.synced = False
    world.register("n-0", path=())
    world.run(PATIENCE_SECONDS - 2)
    assert not world.reloads
    world.run(8)
    assert world.undrained == ["n-0"]


def test_while_slurmctld_is_away_nothing_is_done(world: World) -> None:
    world.register("n-0")
    world.up = False
    world.run(20)
    assert not world.reloads


def test_without_a_tree_nobody_is_asked_anything(world: World) -> None:
    world.files = {"slurm.conf": "x"}
    world.register("n-0")
    world.run(20)
    assert not world.reloads
    assert not world.undrained


def test_a_node_that_waits_while_the_tree_is_turned_off_is_let_go(world: World) -> None:
    world.run(3)
    world.files = {"slurm.conf": "x"}
    world.register("n-0")
    world.run(3)
    assert world.undrained == ["n-0"]


def test_the_first_tree_has_every_node_that_is_there(world: World) -> None:
    world.nodes = {"n-0": "", "n-1": ""}
    world.places = {"n-0": B}
    assert tree(world.keeper.initial(("x", "y")))[0] == {"core.b": ["n-0"], "unknown": ["n-1"]}
    world.up = False
    assert world.keeper.initial(("x", "y")) == render({})


def test_states_and_reasons_are_read_from_slurms_own_lines() -> None:
    text = (
        "NodeName=a-0 Arch=x86_64 CoresPerSocket=1 CPUAlloc=0 State=IDLE+DRAIN+DYNAMIC_NORM ThreadsPerCore=1 "
        "CurrentWatts=0 AveWatts=0 Reason=slurmstack:waiting-for-topology [slurm@2026-11-21T14:42:58] \n"
        "NodeName=a-1 Arch=x86_64 State=IDLE+DYNAMIC_NORM ThreadsPerCore=1 \n"
        "NodeName=a-2 Arch=x86_64 State=DOWN+DYNAMIC_NORM Reason=slurmstack:waiting-for-topology [slurm@2026] \n"
    )
    assert [(node.name, waits(node)) for node in parse_nodes(text)] == [
        ("a-0", True),
        ("a-1", False),
        ("a-2", False),
    ]
    assert parse_nodes("No nodes in the system\n") == []


# ---------------------------------------------------------------- the agent

STACK = {"slurm.conf": "ClusterName=a\n", LABELS_FILE: "x\n"}


class Controller:
    """An agent whose slurmctld takes everything but `deadly` files."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "store")
        self.up = False
        self.reconfigured = 0
        self.log: list[str] = []
        self.ready = directory / "ready"
        self.board = StatusBoard(initial_status("24.11.5"))
        self.agent = Agent(
            store=self.store, check=self.check, slurmctld=self, board=self.board, log=self.log.append,
            ready=self.ready, clock=FakeClock(), first_topology=lambda keys: f"# first {','.join(keys)}\n",
        )  # fmt: skip

    def check(self, files: Files) -> Verdict:
        bad = "wrong" in files.get(TOPOLOGY_CONF, "") + files["slurm.conf"]
        return Verdict(starts=not bad, complaints=("fatal: wrong",) if bad else ())

    def is_up(self) -> bool:
        return self.up

    def listens(self) -> bool:
        return self.up

    def reconfigure(self) -> Result:
        self.reconfigured += 1
        self.up = "deadly" not in (self.store.current_link / TOPOLOGY_CONF).read_text()
        return Result(code=0)

    @property
    def topology(self) -> str:
        return self.agent.published()[TOPOLOGY_CONF]


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    made = Controller(tmp_path)
    made.agent.take(STACK)
    made.up = True
    made.agent.tick()
    return made


def test_the_stack_knows_a_configuration_by_its_own_files_whatever_the_tree(controller: Controller) -> None:
    assert controller.board.get().active == config_hash(STACK)
    assert controller.topology == "# first x\n"
    assert controller.agent.reload("# second\n")
    assert controller.topology == "# second\n"
    assert controller.board.get().active == config_hash(STACK)
    assert controller.board.get().pending is None


def test_a_changed_setting_keeps_the_tree(controller: Controller) -> None:
    controller.agent.reload("# second\n")
    changed = {**STACK, "slurm.conf": "ClusterName=a\nMaxJobCount=5\n"}
    controller.agent.take(changed)
    assert controller.topology == "# second\n"
    assert controller.board.get().active == config_hash(changed)


def test_a_new_tree_goes_with_the_settings_in_force_not_with_rejected_ones(controller: Controller) -> None:
    controller.agent.take({**STACK, "slurm.conf": "wrong"})
    assert controller.agent.reload("# second\n")
    assert controller.agent.published()["slurm.conf"] == STACK["slurm.conf"]
    rejected = controller.board.get().rejected
    assert rejected is not None
    assert rejected.message == "fatal: wrong"


@pytest.mark.parametrize("text", ["wrong\n", "deadly\n"])
def test_a_tree_that_slurm_does_not_like_is_taken_back(controller: Controller, text: str) -> None:
    assert not controller.agent.reload(text)
    assert controller.topology == "# first x\n"
    assert controller.board.get().active == config_hash(STACK)
    assert controller.board.get().rejected is None


def test_the_same_tree_is_read_again_when_nodes_wait(controller: Controller) -> None:
    assert controller.agent.reload("# first x\n")
    assert controller.reconfigured == 1


def test_while_slurmctld_is_down_no_tree_is_published(controller: Controller) -> None:
    controller.up = False
    assert not controller.agent.reload("# second\n")
    assert controller.topology == "# first x\n"


def test_an_agent_that_restarts_goes_on_with_the_tree_of_before(controller: Controller, tmp_path: Path) -> None:
    controller.agent.reload("# second\n")
    again = Controller(tmp_path)
    again.up = True
    again.agent.take(STACK)
    assert again.topology == "# second\n"
    assert again.reconfigured == 0
    assert again.board.get().active == config_hash(STACK)


def test_without_labels_in_the_stack_there_is_no_tree(controller: Controller) -> None:
    controller.reconfigure = lambda: Result(code=0)  # type: ignore[method-assign]
    controller.agent.take({"slurm.conf": "ClusterName=a\n"})
    assert TOPOLOGY_CONF not in controller.agent.published()
    assert version_of({"slurm.conf": "ClusterName=a\n"}) == config_hash({"slurm.conf": "ClusterName=a\n"})


def test_the_name_of_a_version_tells_the_stacks_part() -> None:
    assert stack_part(version_of({**STACK, TOPOLOGY_CONF: "1"})) == config_hash(STACK)
    assert version_of({**STACK, TOPOLOGY_CONF: "1"}) != version_of({**STACK, TOPOLOGY_CONF: "2"})
    assert stack_part(None) is None


def test_the_trial_has_the_same_tree_with_nodes_of_its_own() -> None:
    scratch = Scratch(directory="/tmp/s", slurmctld_port=1, slurmd_port=2)
    places: dict[str, SwitchPath] = {"n-0": A, "n-1": A, "n-2": B, "m-7": ()}
    files = scratch_files({"slurm.conf": "ClusterName=a\n", TOPOLOGY_CONF: render(places)}, scratch)
    leaves, inner = tree(files[TOPOLOGY_CONF])
    assert inner == tree(render(places))[1]
    assert leaves == {
        "core.a": ["slurmstack-scratch-0"],
        "core.b": ["slurmstack-scratch-1"],
        "unknown": ["slurmstack-scratch-2"],
    }
    assert "NodeName=slurmstack-scratch-[0-2] " in files["slurm.conf"]


def test_the_agent_looks_for_the_file_that_the_stack_writes() -> None:
    assert slurm.topology.LABELS_FILE == LABELS_FILE


def test_the_labels_are_one_a_line() -> None:
    assert label_keys("a/b\n\n c \n") == ("a/b", "c")


# ---------------------------------------------------------------- the worker


def _node(plugin: str) -> Node:
    return Node(name="n-0", runner=FakeRunner({"scontrol show config": Result(code=0, stdout=plugin)}))


@pytest.mark.parametrize(
    ("shown", "waits"),
    [
        ("TopologyParam           = (null)\nTopologyPlugin          = topology/tree\n", True),
        ("TopologyPlugin          = topology/flat\n", False),
        ("TopologyPlugin          = topology/default\n", False),
    ],
)
def test_a_worker_registers_drained_only_where_there_is_a_tree(shown: str, *, waits: bool) -> None:
    assert waits_for_place(_node(shown), lambda _: None, FakeClock()) is waits


def test_a_worker_asks_again_and_then_goes_on_without_an_answer() -> None:
    runner = FakeRunner({"scontrol show config": Result(code=NO_PROGRAM)})
    log: list[str] = []
    assert not waits_for_place(Node(name="n-0", runner=runner), log.append, FakeClock())
    assert len(runner.commands) == ASK_TIMES
    assert "going on" in log[0]


@pytest.mark.parametrize(("keep", "resumed"), [(True, False), (False, True)])
def test_a_slurmd_that_starts_again_leaves_the_waiting_to_the_agent(*, keep: bool, resumed: bool) -> None:
    record = f'{{"nodes": [{{"name": "n-0", "state": ["IDLE", "DRAIN"], "reason": "{TOPOLOGY_REASON}"}}]}}'
    runner = FakeRunner({"scontrol show node": Result(code=0, stdout=record)})
    assert lift_own_drain(Node(name="n-0", runner=runner), lambda _: None, keep_waiting=keep) is resumed
    assert runner.ran("scontrol update nodename=n-0 state=resume") is resumed
