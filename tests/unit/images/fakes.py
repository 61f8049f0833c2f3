"""Where the tests of the health checks look for what is in tests/fakes now."""

from tests.fakes.commands import Answer, FakeClock, FakeRunner

__all__ = ["Answer", "FakeClock", "FakeRunner"]
