"""Runs a package's tasks in their order, and tells what happens to each."""

import contextlib
import dataclasses
import logging
import os
import pathlib
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping

from lockstep.components.errors import StepFailed
from lockstep.pipelines import run_events, run_guards
from lockstep.pipelines.console import Console, shorten
from lockstep.pipelines.kubeflow.emulator import cache, driver, pod
from lockstep.pipelines.kubeflow.emulator.docker import Docker
from lockstep.pipelines.kubeflow.emulator.engine import Engine, Processes, as_json, empty_folder
from lockstep.pipelines.kubeflow.emulator.files import EmulationFiles, EmulationRunFiles
from lockstep.pipelines.kubeflow.emulator.launcher import Launch, Launcher
from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions
from lockstep.pipelines.kubeflow.emulator.records import Outputs, Records
from lockstep.pipelines.kubeflow.emulator.store import Bucket, FolderStore, S3Store, Store
from lockstep.pipelines.kubeflow.emulator.workload import Task, Workload, read_workload
from lockstep.pipelines.kubeflow.package import Package
from lockstep.pipelines.kubeflow.validation import check

# Where a Kubeflow as it is installed keeps artifacts of runs that name no root.
_KFP_ROOT = "minio://mlpipeline/v2/artifacts"
_TAIL_LINES = 20
_TAIL_BYTES = 1 << 16
# A step that found no room often removes what it had written of the file.
_FULL_BYTES = 1 << 20
_PROGRESS = re.compile(rb"lockstep\.progress: (.*)")

_logger = logging.getLogger(__name__)


def emulate(
    package: Package, options: EmulateOptions, console: Console, source: str = "package"
) -> run_events.RunFinished:
    """Runs a package to its end and shows it; blocks. Interrupting ends the running step before this returns.

    What an interrupted or killed emulation left is neither used nor in the way of the next one.

    Args:
      package: As read from its file.
      options: How.
      console: What shows the events.
      source: What errors call the package: its file.

    Returns:
      How the run ended.

    Raises:
      ConfigurationError: The package, an option or this machine cannot be used; nothing was started.
      StepFailed: Another run uses the root, its disk is full, its records cannot be used, or the store does not answer.
    """
    check(package, source)
    workload = read_workload(package.spec, package.platform)
    parameters = driver.run_parameters(workload, options.parameters)
    root = (options.root or pathlib.Path("lockstep-runs") / f"{workload.name}-kubeflow").absolute()
    pipeline_root = options.pipeline_root or workload.default_root or _KFP_ROOT
    bucket = Bucket.from_uri(pipeline_root)
    files = EmulationFiles(root)
    store = FolderStore(files.store_dir) if options.store is None else _s3_store(options.store, files)
    store_dir = files.store_dir if options.store is None else None
    engine: Engine = (
        Docker(root=root, store_dir=store_dir)
        if options.docker
        else Processes(working_dir=options.working_dir, store_dir=store_dir)
    )
    pods = {task.name: (task, pod.make_pod(task, parameters, files, endpoint=options.store)) for task in workload.tasks}
    engine.check(pods)
    store.check(pipeline_root)
    with contextlib.ExitStack() as stack:
        with run_guards.root_errors(root):
            files.runs_dir.mkdir(parents=True, exist_ok=True)
            stack.enter_context(run_guards.locked(files.lock_path))
            run_files = EmulationRunFiles(run_guards.make_run_dir(files.runs_dir))
            records = Records(files.records_path)
            empty_folder(files.containers_dir)
        stack.enter_context(_logged(run_files.log_path))
        stack.enter_context(run_guards.interruptible())
        run = driver.Run(
            id=str(uuid.uuid4()),
            pipeline=workload.name,
            root=f"{pipeline_root.rstrip('/')}/{run_files.run_dir.name}",
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            parameters=parameters,
            kfp_version=_version(options.kfp_version),
        )
        launcher = Launcher(engine=engine, store=store, bucket=bucket, records=records)
        emulation = _Emulation(run, pods, files, run_files, store, records, launcher, console)
        return emulation.run(workload)


class _Emulation:
    """One run."""

    def __init__(
        self,
        run: driver.Run,
        pods: Mapping[str, tuple[Task, pod.Pod]],
        files: EmulationFiles,
        run_files: EmulationRunFiles,
        store: Store,
        records: Records,
        launcher: Launcher,
        console: Console,
    ) -> None:
        self._run, self._pods, self._files, self._run_files = run, pods, files, run_files
        self._store, self._records, self._launcher, self._console = store, records, launcher, console
        self._begin = time.monotonic()
        self._done: dict[str, Outputs] = {}

    def run(self, workload: Workload) -> run_events.RunFinished:
        """Runs all tasks; after a failed one none starts, as with Argo."""
        names = tuple(task.name for task in workload.tasks)
        self._console.run_begins(workload.name, self._run_files.log_path, "run as Kubeflow Pipelines would")
        self._tell(run_events.RunStarted(steps=names, versions=""))
        finished = run_events.RunFinished(exit_code=0, message=f"{len(names)} tasks, all of them successful")
        for index, task in enumerate(workload.tasks):
            step = _Step(task.name, self._tell)
            step.change("running")
            try:
                self._run_task(task, step)
            except StepFailed as e:
                step.change("failed")
                finished = run_events.RunFinished(exit_code=1, message=f"{task.name}: {e}")
            except KeyboardInterrupt:
                self._console.interrupted()
                step.change("failed", "interrupted")
                finished = run_events.RunFinished(exit_code=1, message="interrupted; finished tasks stay in the cache")
            if finished.exit_code:
                for name in names[index + 1 :]:
                    _Step(name, self._tell).change("skipped")
                break
        else:
            finished = self._with_push(finished)
        self._tell(finished)
        self._console.run_ends(finished, self._run_files.log_path, time.monotonic() - self._begin, data="PATH")
        return finished

    def _with_push(self, finished: run_events.RunFinished) -> run_events.RunFinished:
        """Adds what became of the model: for Kubeflow a run whose model was refused is as green as any."""
        artifacts = [artifact for outputs in self._done.values() for artifact in outputs.artifacts.values()]
        for metadata in (artifact.metadata for artifact in artifacts if "pushed" in artifact.metadata):
            if not metadata["pushed"]:
                reason = metadata.get("summary", "nothing pushed")
                return run_events.RunFinished(exit_code=4, message=f"{finished.message}; {reason}")
            place = self._store.place(str(metadata.get("pushed_destination", "")))
            return dataclasses.replace(finished, message=f"{finished.message}; the model is pushed", pushed=place)
        return finished

    def _tell(self, event: run_events.RunEvent) -> None:
        if not (isinstance(event, run_events.StepChanged) and event.state == "running"):
            try:
                with self._run_files.events_path.open("a", encoding="utf-8") as events:
                    events.write(run_events.to_line(event))
            except OSError as e:
                room = _no_room(self._files.root)
                raise StepFailed(f"{self._run_files.events_path}: {e.strerror}{room}") from e
        if not isinstance(event, run_events.RunFinished):
            self._console.show(event, time.monotonic() - self._begin)

    def _run_task(self, task: Task, step: "_Step") -> None:
        executor_input = driver.executor_input(task, self._run, self._done)
        _logger.info("%s: %s", task.name, as_json(executor_input))
        fingerprint = None
        if task.cached:
            fingerprint = cache.fingerprint(task, executor_input, claims=self._pods[task.name][1].claims)
            found = self._cached(task, fingerprint, executor_input)
            if found is not None:
                run, self._done[task.name] = found
                step.change("cached", f"of run {run}")
                return
        outputs = self._attempts(task, executor_input, step)
        self._records.add_execution(
            outputs,
            pipeline=self._run.pipeline,
            run=self._run_files.run_dir.name,
            task=task.name,
            fingerprint=fingerprint,
        )
        self._done[task.name] = outputs
        step.change("done")

    def _cached(self, task: Task, fingerprint: str, executor_input: Mapping[str, object]) -> tuple[str, Outputs] | None:
        found = self._records.find(pipeline=self._run.pipeline, fingerprint=fingerprint)
        if found is None:
            return None
        run, outputs = found
        changes = cache.changes(outputs.artifacts, self._store)
        if changes:
            told = ", ".join(f"{name} {change}" for name, change in changes.items())
            uris = ", ".join(outputs.artifacts[name].uri for name in changes)
            _logger.warning(
                "%s: Kubeflow would take it from its cache, of run %s; in the object store %s (%s); it runs again here",
                task.name,
                run,
                told,
                uris,
            )
            self._console.warn(
                f"{task.name}: in the object store its cached {told}; Kubeflow would not look and hand it on, here the"
                " task runs again"
            )
            return None
        return run, outputs

    def _attempts(self, task: Task, executor_input: Mapping[str, object], step: "_Step") -> Outputs:
        """Returns a task's outputs after as many attempts as Argo would make; it would also wait between them."""
        the_pod = self._pods[task.name][1]
        begin, waited_s = time.monotonic(), 0.0
        for index in range(task.retry.max_retries + 1):
            log_path = self._run_files.attempt_log_path(task.name, index)
            container_dir = self._files.containers_dir / f"{task.name}-{index}"
            # Argo's maximum duration ends further attempts, not the first one.
            left_s = task.retry.max_duration_s - (time.monotonic() - begin + waited_s) if index else None
            try:
                outputs = self._launcher.run(
                    Launch(
                        task=task,
                        pod=the_pod,
                        executor_input=executor_input,
                        retry_index=index,
                        container_dir=container_dir,
                        log_path=log_path,
                        timeout_s=min((s for s in (the_pod.deadline_s, left_s) if s is not None), default=None),
                        show=step.show,
                    )
                )
            except StepFailed as e:
                _logger.warning("%s: attempt %d failed: %s", task.name, index, e)
                refusal = task.retry.refusal(num_attempts=index + 1, since_first_s=time.monotonic() - begin + waited_s)
                room = _no_room(self._files.root)
                if refusal is not None:
                    raise StepFailed(_failure(f"{e}{room}", index + 1, refusal, log_path)) from e
                waited_s += task.retry.wait_s(index + 1)
                _logger.info("%s: Argo would wait %g s", task.name, task.retry.wait_s(index + 1))
                self._console.warn(f"{task.name}: attempt {index + 1} failed ({e}{room}); the next one begins")
            else:
                empty_folder(container_dir).rmdir()
                return outputs
        raise AssertionError("the last attempt either succeeded or was refused a further one")


class _Step:
    """The state of one task, told as it changes."""

    def __init__(self, name: str, tell: Callable[[run_events.RunEvent], None]) -> None:
        self._name, self._tell = name, tell
        self._begin = time.monotonic()
        self._figure = ""

    def change(self, state: run_events.StepState, figure: str | None = None) -> None:
        """Tells a new state."""
        if figure is not None:
            self._figure = figure
        self._tell(
            run_events.StepChanged(
                step=self._name, state=state, figure=self._figure, seconds=time.monotonic() - self._begin
            )
        )

    def show(self, output: bytes) -> None:
        """Tells that the task runs, with the last progress that its output holds."""
        found = _PROGRESS.findall(output)
        self.change("running", found[-1].decode(errors="replace").strip() if found else None)


def _no_room(root: pathlib.Path) -> str:
    """Returns what a failure's message ends with where a disk is full: the root's, or that of temporary files."""
    temporary_dir = pathlib.Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - tempfile's own default
    full = []
    for folder, remedy in ((root, "make room, or give another --root"), (temporary_dir, "make room, or set TMPDIR")):
        with contextlib.suppress(OSError):
            if shutil.disk_usage(folder).free < _FULL_BYTES:
                full.append(f"; no space is left in {folder}: {remedy}")
    return "".join(full)


def _failure(error: str, num_attempts: int, refusal: str, log_path: pathlib.Path) -> str:
    """Returns what a person reads of a failed task: the reason, the end of its log, where that is."""
    tail = ""
    if log_path.exists():
        with log_path.open("rb") as log:
            log.seek(max(0, log_path.stat().st_size - _TAIL_BYTES))
            lines = log.read().decode(errors="replace").splitlines()[-_TAIL_LINES:]
        tail = "".join(f"\n  | {line[:500]}" for line in lines)
    attempts = f" (attempt {num_attempts}; {refusal})" if num_attempts > 1 or "duration" in refusal else ""
    return f"{error}{attempts}{tail}\nlog: {shorten(log_path)}"


def _s3_store(endpoint: str, files: EmulationFiles) -> Store:
    """Returns the service with the credentials that KFP's launcher has: those of its secret."""
    access_key, secret_key = (
        pod.secret_value(pod.MINIO_SECRET, key, files, os.environ.get(variable))
        for key, variable in (("accesskey", "AWS_ACCESS_KEY_ID"), ("secretkey", "AWS_SECRET_ACCESS_KEY"))
    )
    return S3Store(endpoint, access_key=access_key, secret_key=secret_key)


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


@contextlib.contextmanager
def _logged(path: pathlib.Path) -> Iterator[None]:
    """Writes the emulator's log messages to a file."""
    handler = _LogFile(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level = _logger.level
    _logger.addHandler(handler)
    _logger.setLevel(logging.INFO)
    _logger.propagate = False
    try:
        yield
    finally:
        _logger.propagate = True
        _logger.setLevel(level)
        _logger.removeHandler(handler)
        with contextlib.suppress(OSError):
            handler.close()


class _LogFile(logging.FileHandler):
    """A log whose disk may be full, which the run itself tells: no traceback of logging's own beside that."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - of logging
        """Passes over what cannot be written."""
