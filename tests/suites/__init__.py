"""The two suites: the gate (`make test`) and the rest of the tests, stage by stage (`make test-full`)."""
