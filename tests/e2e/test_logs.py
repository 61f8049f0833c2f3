"""`slurmstack logs` and `slurmstack support-bundle` on the real local Kubernetes."""

from __future__ import annotations

import base64
import json
import tarfile
from pathlib import Path

from tests.e2e.harness import SlurmOnKubernetes, slurmstack, wait_until


def logs(slurm: SlurmOnKubernetes, *arguments: str) -> list[str]:
    return slurmstack("logs", *arguments, "--config", str(slurm.file)).stdout.splitlines()


def place(lines: list[str], text: str) -> int:
    """Where the first line with a text stands."""
    found = [number for number, line in enumerate(lines) if text in line]
    assert found, f"no line has {text!r}:\n" + "\n".join(lines)
    return found[0]


def test_a_job_s_lines_are_in_order_across_slurmctld_and_slurmd(two_nodes: SlurmOnKubernetes) -> None:
    slurm = two_nodes
    job, other = slurm.submit("srun -N2 hostname", "-N2"), slurm.submit("true")
    slurm.await_job(job)
    slurm.await_job(other)
    recorded = f"sacct -j {job} -X -n -P -o state,end"
    wait_until(lambda: slurm.slurm(recorded).startswith("COMPLETED"), "the job's end is recorded")

    lines = logs(slurm, "--job", job)
    submitted = place(lines, f"controller(controller-0/slurmctld) slurmctld: _slurm_rpc_submit_batch_job: JobId={job} ")
    launched = place(lines, f"Launching batch job {job} for")
    steps = [place(lines, f"worker({node}/slurmd) slurmd-{node}: launch task StepId={job}.0") for node in slurm.nodes()]
    done = place(lines, f"_job_complete: JobId={job} done")
    assert submitted < launched < min(steps) <= max(steps) < done
    assert place(lines, f"job {job} submitted by alice") < place(lines, f"job {job} ended: COMPLETED, exit code 0:0")
    times = [line.split()[0] for line in lines]
    assert times == sorted(times)
    assert not [line for line in lines if f"JobId={other}" in line or f"job {other} " in line]


def secrets_of(slurm: SlurmOnKubernetes) -> dict[str, bytes]:
    """Every value in the namespace, by SECRET/KEY."""
    return {
        f"{item['metadata']['name']}/{key}": base64.b64decode(value)
        for item in slurm.kubectl.items("secret", "-n", slurm.namespace)
        for key, value in (item.get("data") or {}).items()
    }


def forms_of(value: bytes) -> list[str]:
    """As text, as far as it is, and in Base64."""
    encoded = base64.b64encode(value).decode()
    lines = value.decode("utf-8", "replace").splitlines() if b"\xff" not in value else []
    return [encoded, *(line for line in lines if len(line) >= 8 and line.isascii())]


def plant(slurm: SlurmOnKubernetes, texts: list[str]) -> None:
    """Have texts in a pod's log, in an annotation, and in a job's comment."""
    inside = ("exec", "-i", "-n", slurm.namespace, "login-0", "-c", "sshd", "--", "sh", "-c", "cat > /proc/1/fd/1")
    slurm.kubectl.run(*inside, stdin="".join(f"planted {text}\n" for text in texts))
    patch = json.dumps({"metadata": {"annotations": {"planted": "\n".join(texts)}}})
    slurm.kubectl.run("patch", "pod", "login-0", "-n", slurm.namespace, "--patch-file=/dev/stdin", stdin=patch)
    job = slurm.submit("true", "--hold")
    slurm.slurm(f"scontrol update jobid={job} comment='{texts[0]}'")
    read = ("logs", "-n", slurm.namespace, "login-0", "-c", "sshd")
    wait_until(lambda: texts[-1] in slurm.kubectl.run(*read).stdout, "the texts are in the log")


def test_no_secret_of_the_namespace_is_in_the_bundle(two_nodes: SlurmOnKubernetes, tmp_path: Path) -> None:
    slurm = two_nodes
    secrets = secrets_of(slurm)
    assert {"munge-key/munge.key", "database-password/password"} <= secrets.keys()
    planted = {form: name for name, value in secrets.items() for form in forms_of(value)}
    plant(slurm, list(planted))
    archive = tmp_path / "bundle.tar.gz"
    said = slurmstack("support-bundle", "--output", str(archive), "--config", str(slurm.file)).stdout
    slurm.slurm("scancel --state=pending --user=alice")

    assert "Look through it before you send it" in said
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    leaks = [
        (name, secret)
        for name, content in files.items()
        for form, secret in planted.items()
        if form.rstrip("=").encode() in content
    ]
    leaks += [(name, secret) for name, content in files.items() for secret, raw in secrets.items() if raw in content]
    assert leaks == []
    for name in ("logs/login-0/sshd.log", "kubernetes/pods.json", "slurm/jobs.txt"):
        assert b"<removed: secret " in files[name], name
    for name in ("logs/controller-0/slurmctld.log", "slurm/config.txt", "slurm/sacct.txt", "status.json", "stack.yaml"):
        assert name in files
    assert "Not read:\nnothing" in files["MANIFEST.txt"].decode()
    again = slurmstack("support-bundle", "-o", str(archive), "--config", str(slurm.file), check=False)
    assert (again.returncode, "File exists" in again.stderr) == (2, True)
