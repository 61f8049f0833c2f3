"""A real directory service for tests: OpenLDAP's slapd with TLS, unpacked from Debian's package and never installed."""

from __future__ import annotations

import os
import subprocess
import textwrap
from dataclasses import dataclass, field
from pathlib import Path

from local.report import PlainReport
from local.tools import Requirement, Tools, ensure_tools
from slurm.certificates import server_certificate
from tests.slurm.minimal import SEED
from tests.slurm.pod import HANG_SECONDS, Pod, wait_until

REQUIREMENTS = (Requirement(packages=("slapd",), programs=("slapd", "slapadd")),)
BASE = "dc=example,dc=org"
READER = f"cn=reader,{BASE}"
PASSWORD = "directory-password"
"""Of a directory that lives as long as one test."""

CONFIG = """\
include {schema}/core.schema
include {schema}/cosine.schema
include {schema}/nis.schema
include {schema}/inetorgperson.schema
attributetype ( 1.3.6.1.4.1.24552.500.1.1.1.13 NAME 'sshPublicKey'
  EQUALITY octetStringMatch SYNTAX 1.3.6.1.4.1.1466.115.121.1.40 )
objectclass ( 1.3.6.1.4.1.24552.500.1.1.2.0 NAME 'ldapPublicKey' SUP top AUXILIARY MAY ( sshPublicKey $ uid ) )
modulepath {modules}
moduleload back_mdb
TLSCertificateFile {work}/cert.pem
TLSCertificateKeyFile {work}/key.pem
pidfile {work}/slapd.pid
argsfile {work}/slapd.args
disallow bind_anon
database mdb
maxsize 16777216
suffix {base}
rootdn {reader}
rootpw {password}
directory {work}/data
access to * by users read by anonymous auth
"""


@dataclass
class Directory:
    """slapd on the network of one pod; its entries are given before it starts."""

    work: Path
    host: str
    entries: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._tls = server_certificate(SEED, "directory", [self.host])
        self.entries = [
            f"dn: {BASE}\nobjectClass: organization\nobjectClass: dcObject\no: example\ndc: example\n",
            f"dn: ou=people,{BASE}\nobjectClass: organizationalUnit\nou: people\n",
            f"dn: ou=groups,{BASE}\nobjectClass: organizationalUnit\nou: groups\n",
        ]

    def add_user(self, name: str, uid: int, key: str) -> None:
        """A person with an own group, and an SSH key."""
        self.entries.append(
            f"dn: uid={name},ou=people,{BASE}\nobjectClass: inetOrgPerson\nobjectClass: posixAccount\n"
            f"objectClass: ldapPublicKey\nuid: {name}\ncn: {name}\nsn: {name}\nuidNumber: {uid}\ngidNumber: {uid}\n"
            f"homeDirectory: /home/{name}\nloginShell: /bin/bash\nsshPublicKey: {key}\n"
        )
        self.add_group(name, uid)

    def add_group(self, name: str, gid: int, *members: str) -> None:
        """A group with members."""
        lines = "".join(f"memberUid: {member}\n" for member in members)
        self.entries.append(
            f"dn: cn={name},ou=groups,{BASE}\nobjectClass: posixGroup\ncn: {name}\ngidNumber: {gid}\n{lines}"
        )

    def start(self, pod: Pod) -> None:
        """Listen on the pod's network; the program itself is the host's."""
        tools = ensure_tools(PlainReport(), REQUIREMENTS)
        (self.work / "data").mkdir(parents=True)
        (self.work / "cert.pem").write_text(self._tls.certificate)
        (self.work / "key.pem").write_text(self._tls.private_key)
        config = self.work / "slapd.conf"
        config.write_text(
            CONFIG.format(
                schema=tools.file("etc/ldap/schema"), modules=tools.file("usr/lib/ldap"), work=self.work, base=BASE,
                reader=READER, password=PASSWORD,
            )
        )  # fmt: skip
        loaded = self._run(tools, ["slapadd", "-f", str(config)], "\n".join(self.entries))
        assert loaded.returncode == 0, loaded.stderr
        network = ["nsenter", f"--target={pod.pid}", "--net"]
        with (self.work / "slapd.log").open("wb") as log:
            process = subprocess.Popen(
                [*network, tools.path("slapd"), "-d", "0", "-f", str(config), "-h", "ldaps://0.0.0.0:636"],
                env=tools.env(), stdout=log, stderr=log, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        self._process = process
        wait_until(lambda: self._listens(pod), lambda: f"slapd: {(self.work / 'slapd.log').read_text()}")

    def stop(self) -> None:
        """End slapd."""
        self._process.terminate()
        self._process.wait(HANG_SECONDS)

    def _listens(self, pod: Pod) -> bool:
        assert self._process.poll() is None, (self.work / "slapd.log").read_text()
        return ":027C " in (Path(f"/proc/{pod.pid}/net/tcp")).read_text()

    def _run(self, tools: Tools, command: list[str], given: str) -> subprocess.CompletedProcess[str]:
        command = [tools.path(command[0]), *command[1:]]
        return subprocess.run(
            command, env=tools.env(os.environ), input=given, capture_output=True, text=True, check=False
        )

    def secret(self) -> dict[str, bytes]:
        """What the Secret of `slurmstack:sssd` has for this directory, as docs/users.md shows it."""
        config = f"""\
            [sssd]
            services = nss, ssh, pam
            domains = example

            [nss]
            entry_negative_timeout = 1

            [domain/example]
            id_provider = ldap
            auth_provider = none
            access_provider = simple
            simple_allow_groups = hpc
            ldap_uri = ldaps://{self.host}
            ldap_search_base = {BASE}
            ldap_tls_cacert = /etc/sssd/secrets/ca.crt
            ldap_default_bind_dn = {READER}
            ldap_default_authtok = {PASSWORD}
            """
        return {
            "sssd.conf": textwrap.dedent(config).encode(),
            "ca.crt": self._tls.authority.encode(),
        }
