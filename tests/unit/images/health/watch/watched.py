"""A cluster of four nodes with the watcher in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from images.common.health.contract import Result
from images.common.health.finding import Finding
from images.common.health.report import Report, encode
from images.common.health.slurm import Record, Slurm
from images.health.watch.decide import Action, Policy
from images.health.watch.kubernetes import Teller
from images.health.watch.machines import Machines
from images.health.watch.watcher import Watcher
from tests.fakes.slurmctld import FakeNode, FakeSlurmctld
from tests.unit.images.health.story import play
from tests.unit.images.health.watch.views import NOW, OK, failed, policy


class FakeMachines(Machines):
    """Says what it is told to say."""

    def __init__(self) -> None:
        self.says: dict[str, Finding] = {}

    def findings(self, records: Iterable[Record], now: float) -> dict[str, Finding]:
        del records, now
        return self.says


class FakeTeller(Teller):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.actions: list[tuple[str, str]] = []

    def acted(self, action: Action, now: float) -> None:
        del now
        self.actions.append((action.kind.value, action.node.name))


class Cluster:
    """Four nodes, their clock, and a watcher."""

    def __init__(self) -> None:
        self.time = NOW
        self.slurmctld = FakeSlurmctld(
            lambda: self.time, {f"w-{number}": FakeNode(states={"IDLE"}) for number in range(4)}
        )
        self.nodes = self.slurmctld.nodes
        self.log: list[str] = []
        self.machines = FakeMachines()
        self.teller = FakeTeller()
        self.start()

    def start(self, by: Policy | None = None, *, dry_run: bool = False) -> None:
        """Start a watcher, in the place of the last one."""
        self.watcher = Watcher(
            slurm=Slurm(runner=self.slurmctld.runner),
            policy=by or policy(),
            log=self.log.append,
            machines=self.machines,
            teller=self.teller,
            dry_run=dry_run,
            wall=lambda: self.time,
        )

    def report(self, name: str, *, ahead: float = 0.0, **results: Result) -> None:
        """A node says how it is."""
        self.nodes[name].comment = encode(Report(at=int(self.time + ahead), results=results))

    def round(self, later: float = 2.0) -> None:
        self.time += later
        self.watcher.round()

    def cordon(self, *, lost: bool = False) -> None:
        """Somebody wants the machine of w-1 free, or it is lost."""
        cordoned = failed("machine m is cordoned")
        self.machines.says["w-1"] = Finding(result=cordoned, at=self.time, declared=not lost, lost=lost)

    def play(self, story: str) -> None:
        """What happens to w-1; see `play`."""
        happens: dict[str, Callable[[], object]] = {
            "fault": lambda: self.report("w-1", disks=failed("/jail 97 % used")),
            "well": lambda: self.report("w-1", disks=OK),
            "restart": self.start,
            "cordon": self.cordon,
        }
        play(story, lambda later: self.round(2.0 if later is None else later), happens)

    def drained(self) -> list[str]:
        return [name for name, node in self.nodes.items() if "DRAIN" in node.states]
