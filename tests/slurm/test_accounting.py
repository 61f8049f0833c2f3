"""slurmdbd and MariaDB for real: no job record is lost, whatever is killed meanwhile, and what is wrong is named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.accounting import AccountingSandbox, accounting_config, job_records
from tests.slurm.sandbox import wait_until


@pytest.fixture(scope="module")
def cluster(slurm_version: str) -> Iterator[AccountingSandbox]:
    """A cluster with accounting and one worker."""
    config = accounting_config(slurm_version)
    with AccountingSandbox(slurm_version, config=config, workers=1) as sandbox:
        yield sandbox


def test_a_job_is_recorded_with_its_end(cluster: AccountingSandbox) -> None:
    submitted = cluster.run("sbatch --parsable --output=/dev/null --wrap true")
    assert submitted.returncode == 0, submitted.stderr

    def completed() -> bool:
        found = {job["job_id"]: job["state"]["current"] for job in job_records(cluster)}
        return found.get(int(submitted.stdout)) == ["COMPLETED"]

    wait_until(completed, lambda: f"the record of job {submitted.stdout}: {job_records(cluster)}")
