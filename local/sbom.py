"""What is in an image, as a bill of materials: Debian's packages by dpkg's own list, and our programs by their content.

CycloneDX 1.6 as JSON, a file per role beside `images.tar`: scanners of vulnerabilities read it without the image. The
same layers give the same text.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
import urllib.parse
from pathlib import Path
from typing import Any

_STATUS = "var/lib/dpkg/status"
_OURS = "usr/lib/slurmstack/"


def write(exported: Path, target: Path, *, name: str, suite: str) -> None:
    """Write the bill of an image that buildah exported (local/buildah.py); `name`: its full name."""
    status, ours = _read(exported)
    packages = [_package(entry, suite) for entry in _installed(status)]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {"type": "container", "bom-ref": name, "name": name.rpartition(":")[0], "version": _tag(name)}
        },
        "components": [
            {"type": "operating-system", "bom-ref": f"debian-{suite}", "name": "debian", "version": suite},
            *packages,
            *(
                {
                    "type": "file",
                    "bom-ref": f"/{path}",
                    "name": f"/{path}",
                    "hashes": [{"alg": "SHA-256", "content": ours[path]}],
                }
                for path in sorted(ours)
            ),
        ],
    }
    target.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _read(exported: Path) -> tuple[str, dict[str, str]]:
    """The list of dpkg as the topmost layer has it, and the digest of each file of ours."""
    manifest = json.loads((exported / "manifest.json").read_text(encoding="utf-8"))
    status, ours = "", {}
    for layer in manifest["layers"]:
        with tarfile.open(exported / layer["digest"].partition(":")[2]) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                file = tar.extractfile(member) if path == _STATUS or path.startswith(_OURS) else None
                if file is None:
                    continue
                if path == _STATUS:
                    status = file.read().decode(errors="replace")
                else:
                    ours[path] = hashlib.sha256(file.read()).hexdigest()
    return status, ours


def _installed(status: str) -> list[dict[str, str]]:
    """The fields of each installed package, by name."""
    entries = [dict(re.findall(r"^(\S+): (.*)$", block, re.MULTILINE)) for block in status.split("\n\n")]
    return sorted(
        (entry for entry in entries if entry.get("Status", "").endswith(" installed")),
        key=lambda entry: (entry["Package"], entry["Architecture"]),
    )


def _package(entry: dict[str, str], suite: str) -> dict[str, Any]:
    version, architecture = entry["Version"], entry["Architecture"]
    quoted = urllib.parse.quote(version, safe="")
    url = f"pkg:deb/debian/{entry['Package']}@{quoted}?arch={architecture}&distro={suite}"
    # Debian's security tracker goes by source packages; without this field the source has the package's own name.
    source = entry.get("Source", entry["Package"]).partition(" ")[0]
    return {
        "type": "library",
        "bom-ref": url,
        "name": entry["Package"],
        "version": version,
        "purl": url,
        "properties": [{"name": "debian:source", "value": source}],
    }


def _tag(name: str) -> str:
    return name.rpartition(":")[2]
