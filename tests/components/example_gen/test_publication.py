"""The artifact is published whole or not at all, whatever happens to the process or the disk."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockstep.components.errors import StepFailed
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.record_manifest import Manifest

_INGEST = """
import sys
from pathlib import Path
from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements

ingest([sys.argv[1]], DataOptions(path=sys.argv[1]), Path(sys.argv[2]), Requirements())
"""


def _ingest(rows: Path, out: Path) -> Manifest:
    return ingest([str(rows)], DataOptions(path=str(rows)), out, Requirements())


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("stage", [".writing-*/.rows/rows-*", ".writing-*/Split-*/*"])
def test_nothing_of_a_killed_ingestion_is_published(tmp_path: Path, stage: str) -> None:
    """Killed while rows are read, or while shards are written; again, it gives what an undisturbed one gives."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out"
    rows.write_text("x,y\n" + "".join(f"{i},{i * i}\n" for i in range(400_000)))
    process = subprocess.Popen([sys.executable, "-c", _INGEST, str(rows), str(out)])
    deadline = time.monotonic() + 120
    while not any(out.glob(stage)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    [left] = out.iterdir()
    assert left.name.startswith(".writing-")
    _ingest(rows, out)
    _ingest(rows, tmp_path / "undisturbed")
    assert _contents(out) == _contents(tmp_path / "undisturbed")
    with pytest.raises(StepFailed, match=rf"{out}: holds examples already"):
        _ingest(rows, out)
    assert _contents(out) == _contents(tmp_path / "undisturbed")


@contextlib.contextmanager
def _small_disk(folder: Path, size: str) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_nothing_and_more_room_is_enough(tmp_path: Path) -> None:
    """Wherever the room ends: while rows go to the scratch folder, while shards are written, and at the very end."""
    rows = tmp_path / "rows.csv"
    rows.write_text("x,y\n" + "".join(f"{i},{i * i * 7919 % 100_003}\n" for i in range(60_000)))
    _ingest(rows, tmp_path / "undisturbed")
    failures: list[str] = []
    with _small_disk(tmp_path / "disk", "200k") as disk:
        for size_kb in range(200, 20_000, 150):
            subprocess.run(["mount", "-o", f"remount,size={size_kb}k", str(disk)], check=True)
            try:
                _ingest(rows, disk / "out")
                break
            except StepFailed as e:
                failures.append(str(e))
            assert list((disk / "out").iterdir()) == []
        assert len(failures) > 3
        reason = f"no space left to write the examples in {disk}/out: No space left on device"
        assert [message.startswith(reason) for message in failures] == [True] * len(failures)
        assert _contents(disk / "out") == _contents(tmp_path / "undisturbed")
