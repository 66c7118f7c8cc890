"""What ``lockstep doctor`` looks at, and how it says what it found: the machine, and one pipeline if it is named."""

import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator

from lockstep.components.errors import StepFailed, UserError
from lockstep.components.example_gen.files import format_of, matched_files, split_path
from lockstep.components.object_store import is_object_uri, open_folder
from lockstep.components.pusher import versions
from lockstep.pipelines import machine
from lockstep.pipelines.config import ConfigSource
from lockstep.pipelines.fingerprint import StepFingerprints
from lockstep.pipelines.machine import Finding

_MARKS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM"}


def examine(source: ConfigSource | None, root: pathlib.Path) -> Iterator[Finding]:
    """Gives one finding after the other; those that take seconds last.

    Args:
      source: A pipeline to look at as well: its data, its code, what it needs.
      root: Where runs are kept.
    """
    workers = 1 if source is None else source.config.train.most_workers
    data_bytes = 0
    checks: list[Callable[[], Iterable[Finding]]] = [machine.check_packages, lambda: machine.check_processor(workers)]
    if source is not None:
        size = _data_bytes(source)
        data_bytes = size or 0
        checks += [lambda: _check_data(source, size), lambda: _check_code(source), lambda: _check_push(source)]
    checks += [
        lambda: machine.check_memory(workers),
        lambda: machine.check_disk(root, data_bytes),
        machine.check_loopback,
        machine.check_limits,
        machine.check_devices,
    ]
    for check in checks:
        yield from check()


def _check_data(source: ConfigSource, size: int | None) -> Iterator[Finding]:
    path = source.config.data.path
    if size is None:
        yield Finding(topic="data", state="ok", found=f"{path} is looked for when the pipeline runs")
        return
    try:
        files = matched_files(*split_path(path))
        if source.config.data.format is None:
            format_of(files)
    except (UserError, OSError) as e:
        yield Finding(topic="data", state="problem", found=str(e), remedy="mend data.path, or what is there")
        return
    found = f"{machine.gigabytes(size)} in {path}; read as a stream, in bounded memory"
    yield Finding(topic="data", state="ok", found=found)


def _data_bytes(source: ConfigSource) -> int | None:
    path = source.config.data.path
    if "{" in path or is_object_uri(path):
        return None
    try:
        return sum(pathlib.Path(file).stat().st_size for file in matched_files(*split_path(path)))
    except (UserError, OSError):  # told by the check of the data
        return 0


def _check_code(source: ConfigSource) -> Iterator[Finding]:
    try:
        if source.folder is not None:
            sys.path.append(str(source.folder))
        StepFingerprints(source.config, source.folder).check()
    except UserError as e:
        yield Finding(topic="code", state="problem", found=str(e), remedy="mend the import path, or the module")
    else:
        yield Finding(topic="code", state="ok", found="all import paths lead to what they name")


def _check_push(source: ConfigSource) -> Iterator[Finding]:
    where = source.config.push.dir
    try:
        served = versions.served_version(open_folder(where))
    except (UserError, StepFailed) as e:
        yield Finding(topic="push", state="problem", found=str(e), remedy="mend push.dir, or the access to it")
        return
    if not is_object_uri(where):
        folder = next(parent for parent in (pathlib.Path(where), *pathlib.Path(where).parents) if parent.exists())
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            yield Finding(
                topic="push", state="problem", found=f"{where} cannot be written", remedy="give another push.dir"
            )
            return
    yield Finding(
        topic="push", state="ok", found=f"{where} serves {f'version {served.number}' if served else 'nothing yet'}"
    )


def line(finding: Finding) -> str:
    """Returns a finding as it is printed: one line, and one more for what to do."""
    first = f"  {_MARKS[finding.state]:<9}{finding.topic:<17}{finding.found}"
    return f"{first}\n{' ' * 28}-> {finding.remedy}" if finding.remedy else first


def verdict(findings: Iterable[Finding]) -> str:
    """Returns the closing sentence."""
    states = [finding.state for finding in findings]
    problems, warnings = states.count("problem"), states.count("warning")
    if problems:
        return f"{problems} problem{'s' if problems > 1 else ''}: a run would fail here"
    return f"no problems{f', {warnings} warnings' if warnings > 1 else ', 1 warning' if warnings else ''}"
