"""What a machine must have for a run: packages, processor, memory, disk, ports, limits, devices. Nothing is changed."""

import contextlib
import dataclasses
import importlib.metadata
import json
import os
import pathlib
import platform
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from typing import Literal

import psutil
from packaging.requirements import Requirement

State = Literal["ok", "warning", "problem"]

# Peak of a run with one worker; `make bench` prints such figures.
_PIPELINE_BYTES = 1_700_000_000
# What one more worker adds: the workers of the taxi example (TensorFlow 2.16, 3,000 steps, looked at three times a
# second) have a proportional set size of 515 MB at most together if there is one, of 992 MB if there are two.
_WORKER_BYTES = 480_000_000
# Of the data's size: examples, transformed examples, and room for the next run before the old one is removed.
_DISK_FACTOR = 4
_LOW_DISK_BYTES = 5_000_000_000
_MIN_FILES = 1024
_DEVICES_TIMEOUT_S = 120.0
_DEVICES = (
    "import json, tensorflow as tf\n"
    "print(json.dumps({'version': tf.__version__, 'gpus': [d.name for d in tf.config.list_physical_devices('GPU')],"
    " 'built': tf.test.is_built_with_cuda()}))"
)
_NETWORK_FILE_SYSTEMS = ("nfs", "cifs", "smb", "fuse.sshfs", "9p")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at.

    Args:
      topic: Such as ``memory``.
      state: ``problem``: a run will fail or hang; ``warning``: it may, or is slower than it need be.
      found: What is there.
      remedy: What to do; empty where all is well.
    """

    topic: str
    state: State
    found: str
    remedy: str = ""


def check_packages(distribution: str = "tfx-lockstep") -> Iterator[Finding]:
    """Compares what is installed with what a distribution asks for, extras aside."""
    wrong = []
    for text in importlib.metadata.requires(distribution) or ():
        wanted = Requirement(text)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            there = importlib.metadata.version(wanted.name)
        except importlib.metadata.PackageNotFoundError:
            wrong.append(f"{wanted.name} is not installed")
            continue
        if not wanted.specifier.contains(there, prereleases=True):
            wrong.append(f"{wanted.name} {there}, not {wanted.specifier}")
    python = f"Python {platform.python_version()}, {' '.join(platform.libc_ver()).strip() or 'unknown C library'}"
    if wrong:
        more = f" and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        yield Finding(
            topic="packages",
            state="problem",
            found=f"{python}; {'; '.join(wrong[:5])}{more}",
            remedy="set up anew from the lock: make setup, or pip install --no-deps --require-hashes -r lock.txt",
        )
    else:
        shown = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("tfx", "tensorflow", "keras"))
        yield Finding(topic="packages", state="ok", found=f"{python}, {shown}")


def check_processor(workers: int) -> Iterator[Finding]:
    """Looks at cores, and at the instructions that TensorFlow's wheels are built for."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota(pathlib.Path("/sys/fs/cgroup/cpu.max"))
    shown = f"{cores} cores" + (f", of which a limit gives {quota:.1f}" if quota is not None and quota < cores else "")
    if workers > min(cores, quota or cores):
        yield Finding(
            topic="processor",
            state="warning",
            found=f"{shown} for {workers} workers",
            remedy="train.workers: as many as there are cores, at most; more take turns",
        )
    else:
        yield Finding(topic="processor", state="ok", found=shown)
    flags = _cpu_flags()
    if flags and platform.machine() == "x86_64" and "avx" not in flags:
        yield Finding(
            topic="processor",
            state="problem",
            found="no AVX instructions, without which TensorFlow's wheels end with SIGILL",
            remedy="another machine, or another model of processor in the virtual machine's settings",
        )


def check_memory(workers: int) -> Iterator[Finding]:
    """Compares what is free, for this process's group where it has a limit, with what a run takes."""
    free = psutil.virtual_memory().available
    limit = memory_limit(pathlib.Path("/sys/fs/cgroup"))
    shown = f"{gigabytes(free)} available"
    if limit is not None and limit < free:
        free = limit
        shown = f"{gigabytes(limit)} left of this container's limit"
    needed = _PIPELINE_BYTES + (workers - 1) * _WORKER_BYTES
    number = f"{workers} worker{'s' if workers > 1 else ''}"
    shown += f"; a run with {number} takes about {gigabytes(needed)}, whatever the data's size"
    if free < needed:
        yield Finding(
            topic="memory",
            state="problem",
            found=shown,
            remedy="end other programs, raise the limit, or give train.workers: 1",
        )
    else:
        yield Finding(topic="memory", state="ok", found=shown)


def check_disk(root: pathlib.Path, data_bytes: int) -> Iterator[Finding]:
    """Looks whether the root can be written and locked, and whether there is room there and for temporary files."""
    folder = next(parent for parent in (root, *root.parents) if parent.is_dir())
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=".lockstep-doctor-") as scratch:
            (pathlib.Path(scratch) / "file").write_bytes(b"x" * 4096)
    except OSError as e:
        yield Finding(
            topic="disk",
            state="problem",
            found=f"{root} cannot be written: {e.strerror}",
            remedy="give another folder: --root DIR",
        )
        return
    needed = max(_LOW_DISK_BYTES, _DISK_FACTOR * data_bytes)
    for place, path in {"disk": folder, "temporary files": pathlib.Path(tempfile.gettempdir())}.items():
        free = shutil.disk_usage(path).free
        kind = _file_system(path)
        state: State = "warning" if free < needed or kind.startswith(_NETWORK_FILE_SYSTEMS) else "ok"
        remedy = ""
        if free < needed:
            remedy = f"make room: {gigabytes(needed)} are wanted" + (
                ", or --root DIR on another disk" if place == "disk" else ", or set TMPDIR"
            )
        elif state == "warning":
            remedy = "a local disk for runs is quicker, and its locks can be trusted; push.dir may be on the network"
        yield Finding(topic=place, state=state, found=f"{gigabytes(free)} free in {path} ({kind})", remedy=remedy)


def check_loopback() -> Iterator[Finding]:
    """Looks whether workers on this machine can find and reach one another."""
    try:
        addresses = {str(info[4][0]) for info in socket.getaddrinfo("localhost", None)}
    except OSError as e:
        addresses = set()
        reason = e.strerror or str(e)
    else:
        reason = ", ".join(sorted(addresses))
    if not addresses or not all(address.startswith("127.") or address == "::1" for address in addresses):
        yield Finding(
            topic="ports",
            state="problem",
            found=f"localhost is not this machine ({reason})",
            remedy="a line in /etc/hosts: 127.0.0.1 localhost",
        )
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()[:2], timeout=5),
        ):
            port = server.getsockname()[1]
    except OSError as e:
        yield Finding(
            topic="ports",
            state="problem",
            found=f"no connection over 127.0.0.1: {e.strerror or e}",
            remedy="bring up the loopback interface (ip link set lo up), or allow it in the firewall",
        )
        return
    yield Finding(topic="ports", state="ok", found=f"127.0.0.1 can be reached (tried port {port})")


def check_limits() -> Iterator[Finding]:
    """Looks at the limits of this shell that end a run in its middle."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    size, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    memory, _ = resource.getrlimit(resource.RLIMIT_AS)
    before = True
    for name, value, least, option in (
        ("open files", files, _MIN_FILES, "n"),
        ("a file's size", size, resource.RLIM_INFINITY, "f"),
        ("address space", memory, resource.RLIM_INFINITY, "v"),
    ):
        unlimited = value == resource.RLIM_INFINITY
        if not unlimited and (least == resource.RLIM_INFINITY or value < least):
            before = False
            wanted = "unlimited" if least == resource.RLIM_INFINITY else str(least)
            yield Finding(
                topic="limits",
                state="warning",
                found=f"{name}: {value}",
                remedy=f"ulimit -{option} {wanted} before the run",
            )
    if before:
        yield Finding(topic="limits", state="ok", found=f"{files if files >= 0 else 'unlimited'} open files")


def check_devices() -> Iterator[Finding]:
    """Asks TensorFlow, in a process of its own, which devices it can use."""
    card = shutil.which("nvidia-smi") is not None
    try:
        asked = subprocess.run(
            [sys.executable, "-c", _DEVICES],
            capture_output=True,
            text=True,
            timeout=_DEVICES_TIMEOUT_S,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        yield Finding(
            topic="devices",
            state="problem",
            found=f"TensorFlow did not load within {_DEVICES_TIMEOUT_S:.0f} s",
            remedy="look for other programs that keep processor or disk busy",
        )
        return
    lines = asked.stdout.splitlines()
    if asked.returncode or not lines:
        last = (asked.stderr.strip().splitlines() or [f"exit code {asked.returncode}"])[-1]
        yield Finding(
            topic="devices",
            state="problem",
            found=f"TensorFlow does not load: {last}",
            remedy="set up anew: make setup",
        )
        return
    told = json.loads(lines[-1])
    gpus = told["gpus"]
    shown = f"TensorFlow {told['version']}, {len(gpus)} GPU{'' if len(gpus) == 1 else 's'}"
    if card and not gpus:
        yield Finding(
            topic="devices",
            state="warning",
            found=f"{shown}, though nvidia-smi is here",
            remedy=f"install CUDA's libraries: pip install 'tensorflow[and-cuda]=={told['version']}'",
        )
    else:
        yield Finding(topic="devices", state="ok", found=f"{shown}; the processor's cores are used")


def cpu_quota(path: pathlib.Path) -> float | None:
    """Returns how many cores a control group's ``cpu.max`` gives; None for no limit."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = path.read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    return None


def memory_limit(group: pathlib.Path) -> int | None:
    """Returns how many bytes a control group's limit leaves; None for no limit."""
    with contextlib.suppress(OSError, ValueError):
        limit = (group / "memory.max").read_text().strip()
        used = int((group / "memory.current").read_text())
        inactive = 0  # what the kernel gives back when it is asked to
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith("inactive_file "):
                inactive = int(line.split()[1])
        return None if limit == "max" else max(0, int(limit) - used + inactive)
    return None


def _cpu_flags() -> Sequence[str]:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return line.split()
    return ()


def _file_system(path: pathlib.Path) -> str:
    mounted = [part for part in psutil.disk_partitions(all=True) if path.resolve().is_relative_to(part.mountpoint)]
    return max(mounted, key=lambda part: len(part.mountpoint)).fstype if mounted else "unknown"


def gigabytes(size: int) -> str:
    """Returns a number of bytes as people read it."""
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
