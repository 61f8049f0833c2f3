"""An agent with its surroundings, for the tests of what it does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from images.common.command import Result
from images.controller.agent import Agent, Rejection
from images.controller.check import Verdict
from images.controller.configuration import Files, Store, config_hash
from images.controller.slurmctld import Slurmctld
from tests.fakes.commands import FakeClock, FakeRunner

MISSPELT = "ClusterNmae"
"""What the check does not take, in whatever file."""
COMPLAINT = f"error: Parsing error at unrecognized key: {MISSPELT}"
DEADLY = "deadly"
"""What slurmctld dies of when it reads it."""


class FakeSlurmctld(Slurmctld):
    """Dies of deadly files."""

    def __init__(self, store: Store, clock: FakeClock, told: Path) -> None:
        super().__init__(runner=FakeRunner(), clock=clock)
        self.told = told
        self.up = False
        self.store = store
        self.read: list[Files] = []
        """The files of each reconfiguration."""
        self.instead: Callable[[], Result] | None = None
        """What happens at a reconfiguration instead of it."""
        self.silence = 0.0
        """For how many seconds it waits for slurmdbd when it reads its files."""
        self.answers_at = 0.0
        self.queue: str | None = ""
        self.forgets: Files | None = None
        """Files whose limits are too small for what it holds."""

    def is_up(self) -> bool:
        return self.up and self.clock.now() >= self.answers_at

    def listens(self) -> bool:
        return self.up

    def begin(self) -> None:
        """Read the files of now, as the program that becomes slurmctld has noted."""
        self.told.parent.mkdir(exist_ok=True)
        self.told.write_text(str(self.store.current()), encoding="ascii")

    def start(self) -> None:
        self.begin()
        self.come_up()

    def come_up(self) -> None:
        self.up = DEADLY not in str(self.store.files(str(self.store.current())))

    def reconfigure(self) -> Result:
        if self.instead is not None:
            return self.instead()
        self.read.append(self.store.files(str(self.store.current())))
        self.answers_at = self.clock.now() + self.silence
        self.come_up()
        return Result(code=0)

    def too_small(self, files: Files, before: Files) -> str | None:
        del before
        return "too small" if files == self.forgets else None

    def queue_text(self) -> str | None:
        return self.queue if self.up else None


class World:
    """An agent with its surroundings."""

    def __init__(self, directory: Path) -> None:
        self.store = Store(directory / "store")
        self.ready, self.read, self.file = (directory / "run" / name for name in ("ready", "read", "status.json"))
        self.verdicts: dict[str, Verdict] = {}
        self.log: list[str] = []
        self.clock = FakeClock()
        self.slurmctld = FakeSlurmctld(self.store, self.clock, self.read)
        self.restart_agent()

    def restart_agent(self) -> None:
        self.agent = Agent(
            store=self.store, check=self.check, slurmctld=self.slurmctld, log=self.log.append, ready=self.ready,
            read=self.read, starts=self.ready.with_name("starts"), status_file=self.file,
        )  # fmt: skip

    def check(self, files: Files) -> Verdict:
        if MISSPELT in str(files):
            return Verdict(starts=False, complaints=(COMPLAINT, "fatal: Unable to process configuration file"))
        return self.verdicts.get(config_hash(files), Verdict(starts=True, complaints=()))

    def start(self, files: Files) -> None:
        """Until it runs with these files."""
        self.agent.take(dict(files))
        self.slurmctld.start()
        self.agent.tick()

    @property
    def active(self) -> str | None:
        return self.agent.status.active

    @property
    def rejected(self) -> Rejection:
        found = self.agent.status.rejected
        assert found is not None
        return found
