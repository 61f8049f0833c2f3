"""resume, suspend, resume-failed: what slurmctld starts where nodes are to come, to go, or have not come in time.

They only have the program `elastic` look at once: which nodes these are it sees in Slurm's records. Where it does not
answer, its own look, every ten seconds, comes soon; so nothing here fails.
"""

from __future__ import annotations

import http.client
import os
from typing import Final

HOST: Final = "elastic"
"""Name of the Service."""
PORT: Final = 8818
SECONDS: Final = 3.0


def main() -> int:
    """Entry point."""
    connection = http.client.HTTPConnection(os.environ.get("ELASTIC_HOST", HOST), PORT, timeout=SECONDS)
    try:
        connection.request("POST", "/look")
        connection.getresponse().read()
    except (OSError, http.client.HTTPException):
        pass
    finally:
        connection.close()
    return 0
