"""Stand-ins for what the programs meet in a pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from images.common.command import Result
from images.common.wait import Clock

Answer = Result | Callable[[Sequence[str]], Result]


class FakeClock(Clock):
    """Time that passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += seconds
        self.on_sleep()


class FakeMounts:
    """Bind mounts that are noted, as mount(8) would be told of them, and not made."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.made: list[str] = []

    def __call__(self, source: Path, target: int, *, recursive: bool, read_only: bool) -> None:
        if self.error:
            raise self.error
        how = "--rbind" if recursive else "--bind"
        options = " -o ro" if read_only else ""
        self.made.append(f"{how}{options} {source} {Path(f'/proc/self/fd/{target}').readlink()}")


class FakeRunner:
    """Answers commands by their beginning, the longest first; remembers them."""

    def __init__(self, answers: Mapping[str, Answer] | None = None) -> None:
        self.answers: dict[str, Answer] = dict(answers or {})
        self.commands: list[str] = []
        self.environments: list[Mapping[str, str] | None] = []

    def __call__(self, argv: Sequence[str], *, timeout: float = 10.0, env: Mapping[str, str] | None = None) -> Result:
        assert timeout > 0
        command = " ".join(argv)
        self.commands.append(command)
        self.environments.append(env)
        for beginning in sorted(self.answers, key=len, reverse=True):
            if command.startswith(beginning):
                answer = self.answers[beginning]
                return answer if isinstance(answer, Result) else answer(argv)
        return Result(code=0)

    def ran(self, beginning: str) -> bool:
        """Whether a command with this beginning ran."""
        return any(command.startswith(beginning) for command in self.commands)
