"""``lockstep doctor``: each check with what it is there to find, made for real where that can be done to a process."""

import importlib.metadata
import json
import pathlib
import resource
import socket
import subprocess
import sys

import pytest

from lockstep.pipelines import cli, machine


def found(findings: object, topic: str) -> machine.Finding:
    """Returns the one finding of a topic."""
    [finding] = [f for f in findings if f.topic == topic]  # type: ignore[attr-defined]
    return finding


def write_pipeline(folder: pathlib.Path, **blocks: object) -> pathlib.Path:
    """Writes a small pipeline with its data."""
    (folder / "rows.csv").write_text("x,y\n" + "1,0\n2,1\n" * 50)
    document = {
        "name": "small",
        "data": {"path": "rows.csv"},
        "label": {"column": "y"},
        "features": {"x": {"kind": "numeric"}},
        "evaluate": {"thresholds": {"auc": {"min": 0.1}}},
        "push": {"dir": "served"},
        **blocks,
    }
    (folder / "small.yaml").write_text(json.dumps(document))
    return folder / "small.yaml"


def test_this_machine_runs_the_tests_so_nothing_is_wrong_with_it(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every topic is told, exit code 0, and nothing is left behind."""
    pipeline = write_pipeline(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["doctor", str(pipeline), "--root", str(tmp_path / "root")]) == 0
    told = capsys.readouterr().out
    for topic in ("packages", "processor", "data", "code", "push", "memory", "disk", "ports", "limits", "devices"):
        assert f" {topic} " in told
    assert f"tfx {importlib.metadata.version('tfx')}" in told
    assert "no problems" in told.splitlines()[-1]
    assert sorted(tmp_path.rglob("*")) == before


def test_problems_of_a_pipeline_are_found_together(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data that are gone, code that is not there, a folder that cannot be written: all, each with what to do."""
    pipeline = write_pipeline(tmp_path, model={"build": "no_such_module:build"}, push={"dir": "rows.csv/served"})
    (tmp_path / "rows.csv").rename(tmp_path / "other.txt")
    (tmp_path / "rows.csv").mkdir()
    pipeline.write_text(pipeline.read_text().replace("rows.csv/served", "other.txt/served"))
    assert cli.main(["doctor", str(pipeline), "--root", str(tmp_path / "root"), "--json"]) == 1
    findings = [machine.Finding(**finding) for finding in json.loads(capsys.readouterr().out)]
    assert "no file in" in found(findings, "data").found
    assert "no_such_module" in found(findings, "code").found
    assert "other.txt" in found(findings, "push").found
    assert {f.topic for f in findings if f.state == "problem"} == {"data", "code", "push"}
    assert all(f.remedy for f in findings if f.state != "ok")


def test_data_that_a_run_would_refuse_are_told_in_its_words(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The nearest name, and files of two formats: not just that there is nothing."""
    pipeline = write_pipeline(tmp_path)
    (tmp_path / "more.jsonl").write_text("{}\n")
    for path, told in (("row.csv", "did you mean 'rows.csv'?"), ("[rm]o*[vl]", "differ in format")):
        cli.main(["doctor", str(pipeline), "--root", str(tmp_path / "root"), "--json", "--set", f"data.path={path!r}"])
        findings = [machine.Finding(**finding) for finding in json.loads(capsys.readouterr().out)]
        assert told in found(findings, "data").found


def test_more_workers_than_cores_is_a_warning() -> None:
    """They would take turns."""
    finding = found(machine.check_processor(10_000), "processor")
    assert finding.state == "warning"
    assert "10000 workers" in finding.found
    assert found(machine.check_processor(1), "processor").state == "ok"


def test_too_little_memory_for_the_workers_is_a_problem() -> None:
    """What is asked for is told beside what is there."""
    finding = found(machine.check_memory(1_000_000), "memory")
    assert finding.state == "problem"
    assert "1000000 workers" in finding.found
    assert found(machine.check_memory(1), "memory").state == "ok"


def test_the_limits_of_a_container_are_read(tmp_path: pathlib.Path) -> None:
    """Files of a control group as the kernel writes them; ``max`` and no group are no limit."""
    (tmp_path / "memory.max").write_text("2000000000\n")
    (tmp_path / "memory.current").write_text("1500000000\n")
    (tmp_path / "memory.stat").write_text("anon 1\ninactive_file 400000000\nactive_file 3\n")
    assert machine.memory_limit(tmp_path) == 900_000_000
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.memory_limit(tmp_path) is None
    assert machine.memory_limit(tmp_path / "none") is None
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert machine.cpu_quota(tmp_path / "cpu.max") == 1.5
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert machine.cpu_quota(tmp_path / "cpu.max") is None


def test_a_root_that_cannot_be_written_and_one_without_room(tmp_path: pathlib.Path) -> None:
    """The first is a problem, the second a warning: nobody knows how much a run will write."""
    assert found(machine.check_disk(pathlib.Path("/proc/lockstep"), 0), "disk").state == "problem"
    finding = found(machine.check_disk(tmp_path / "root" / "below", 10**18), "disk")
    assert finding.state == "warning"
    assert finding.remedy.startswith("make room: 4000000000.0 GB are wanted, or --root")


def test_limits_of_the_shell_are_found() -> None:
    """In a process that has them."""
    program = (
        "import resource\nfrom lockstep.pipelines import machine\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (10**9, resource.RLIM_INFINITY))\n"
        "for f in machine.check_limits():\n    print(f.state, f.found, '|', f.remedy)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [
        "warning open files: 256 | ulimit -n 1024 before the run",
        "warning a file's size: 1000000000 | ulimit -f unlimited before the run",
    ]
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 1024:
        assert found(machine.check_limits(), "limits").state == "ok"


def test_a_localhost_elsewhere_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a broken hosts file makes it."""
    elsewhere = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: elsewhere)
    finding = next(iter(machine.check_loopback()))
    assert (finding.topic, finding.state) == ("ports", "problem")
    assert "192.0.2.7" in finding.found


def test_packages_that_do_not_fit_are_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution's own metadata say what it needs; markers and extras count."""
    folder = tmp_path / "wanting-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: wanting\nVersion: 1.0\nRequires-Dist: pytest<1\nRequires-Dist: no-such-thing\n"
        'Requires-Dist: absent; extra == "more"\nRequires-Dist: never; python_version < "3"\nRequires-Dist: pyyaml>=3\n'
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    finding = found(machine.check_packages("wanting"), "packages")
    assert finding.state == "problem"
    assert finding.found.split("; ", 1)[1] == (
        f"pytest {importlib.metadata.version('pytest')}, not <1; no-such-thing is not installed"
    )
    assert found(machine.check_packages(), "packages").state == "ok"
