"""A SLURM of one node for the tests: munged, slurmctld and slurmd as child processes with key, ports and state of their own."""

import getpass
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel", "sinfo", "squeue")

# Requeued jobs wait until the credentials of their first life have expired (cred_expire, at least 5 s), and then for the
# scheduler's next round: the defaults, minutes, are for clusters.
CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ctld_port}
SlurmdPort={slurmd_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={socket},cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,batch_sched_delay=1,sched_min_interval=0
MpiDefault=none
ReturnToService=2
KillWait=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=debug Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Daemon(NamedTuple):
    name: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def one_node(directory: Path) -> Generator[None]:
    """SLURM with one idle node of two cores, for whatever SLURM command is run inside; skips the test where it cannot start."""
    if missing := [program for program in PROGRAMS if not shutil.which(program)]:
        pytest.skip(f"no SLURM: {', '.join(missing)} not installed (Debian: slurm-wlm, munge)")
    munge_socket, key = directory / "munge.sock", directory / "munge.key"
    configuration = directory / "slurm.conf"
    configuration.write_text(
        CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0],
            ctld_port=_free_port(),
            slurmd_port=_free_port(),
            user=getpass.getuser(),
            socket=munge_socket,
            directory=directory,
        )
    )
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    for folder in ("state", "spool"):
        (directory / folder).mkdir()
    own = [f"--{kind}={directory}/munged.{kind.removesuffix('-file')}" for kind in ("pid-file", "log-file", "seed-file")]
    munged = ["munged", "--foreground", "--force", f"--socket={munge_socket}", f"--key-file={key}", *own]
    with ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("SLURM_CONF", str(configuration))
        daemons = [stack.enter_context(_daemon(munged, directory))]
        _ready(daemons, munge_socket.exists)
        daemons += [stack.enter_context(_daemon([name, "-D"], directory)) for name in ("slurmctld", "slurmd")]
        _ready(daemons, lambda: _asked("sinfo", "--noheader", "--format=%T") == "idle")
        try:
            yield
        finally:  # a job that outlives its daemons would wait for them for ever
            _asked("scancel", f"--user={getpass.getuser()}")
            holds_within(20, lambda: _asked("squeue", "--noheader") == "")


@contextmanager
def _daemon(command: list[str], directory: Path) -> Generator[Daemon]:
    log = directory / f"{command[0]}.out"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=directory)
    try:
        yield Daemon(command[0], process, log)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _ready(daemons: list[Daemon], answers: Callable[[], bool]) -> None:
    """Wait until they answer; skips the test, with a daemon's last words, if one of them ends or none answers in time."""

    def ended() -> list[Daemon]:
        return [daemon for daemon in daemons if daemon.process.poll() is not None]

    if not holds_within(20, lambda: bool(ended()) or answers()) or ended():
        culprit = (ended() or daemons)[-1]
        said = culprit.log.read_text(errors="replace").strip().splitlines() or ["nothing"]
        pytest.skip(f"no SLURM: {culprit.name} {'ended' if ended() else 'does not answer'}; it said last: {said[-1]}")


def holds_within(seconds: float, condition: Callable[[], bool]) -> bool:
    """Whether it comes to hold in so many seconds."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.1)
    return True


def _asked(*command: str) -> str | None:
    """What a SLURM command answers; None while it fails."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30)
    return done.stdout.strip() if done.returncode == 0 else None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
