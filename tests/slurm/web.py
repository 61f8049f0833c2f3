"""What stands behind the Service `rest`, the API alone or the page too, and a pod to ask from."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from slurm.certificates import server_certificate
from tests.slurm.minimal import SEED, add_accounts, identity
from tests.slurm.pod import Pod, wait_until
from tests.slurm.sandbox import SlurmSandbox

CURL = ("curl", "--silent", "--show-error", "--cacert", "/root/ca.pem", "--max-time", "60")
SLURMRESTD = {"THREADS": "4", "MAX_CONNECTIONS": "64"}


class Web:
    """A cluster with it. `dashboard`: with the page, too."""

    def __init__(self, sandbox: SlurmSandbox, users: Mapping[str, int], *, dashboard: bool = False) -> None:
        self.sandbox = sandbox
        self.secret = sandbox.work / "tls"
        self.secret.mkdir()
        self.renew("rest")
        binds = {sandbox.config_directory: "/config/slurm", self.secret: "/secrets/tls"}
        self.pod: Pod = sandbox.add_pod("rest", "rest", binds, munged=False)
        client = sandbox.add_pod("client", "jail", munged=False)
        (client.root / "root/ca.pem").write_text(server_certificate(SEED, "sandbox", ["rest"]).authority)
        add_accounts(identity(users, "/tmp"), *(pod.root for pod in sandbox.pods.values()))
        if dashboard:
            self.pod.start_program("dashboard")
        self.pod.start_program("slurmrestd", SLURMRESTD)
        self.pod.start_program("rest-proxy", {"DASHBOARD": "yes"} if dashboard else {})
        page = "dashboard/login" if dashboard else "healthz"
        wait_until(lambda: self.curl("--fail", f"https://rest:6820/{page}").returncode == 0, sandbox.logs)

    def renew(self, *names: str, key_of: str = SEED) -> None:
        """Put another certificate into the Secret's volume."""
        made = server_certificate(SEED, "sandbox", names)
        (self.secret / "tls.key").write_text(server_certificate(key_of, "sandbox", names).private_key)
        (self.secret / "tls.crt").write_text(made.certificate)

    def token(self, user: str = "alice") -> str:
        """Of ten minutes."""
        done = self.sandbox.run(f"scontrol token username={user} lifespan=600")
        return done.stdout.strip().removeprefix("SLURM_JWT=")

    def curl(self, *arguments: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
        """curl in the pod `client`."""
        return self.sandbox.pods["client"].run([*CURL, *arguments], stdin=stdin)
