"""The command ``lockstep``. Nothing heavy is imported before it is needed: ``--help`` takes a fraction of a second."""

import argparse
import contextlib
import dataclasses
import importlib.metadata
import json
import logging
import os
import pathlib
import shlex
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence

from lockstep.components import object_store
from lockstep.components.errors import StepFailed, UserError
from lockstep.components.example_gen.options import FORMATS
from lockstep.components.loading import collector_off


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line.

    Args:
      arguments: What follows ``lockstep``; None takes the process's own.

    Returns:
      The exit code: 0 done; 1 the run failed; 2 wrong usage, configuration or data; 3 the data gate stopped it; 4 the
      model was not blessed.
    """
    options = _parser().parse_args(arguments)
    object_store.configure(os.environ)
    try:
        return int(options.command(options))
    except UserError as e:
        return _complain(str(e), exit_code=2)
    except StepFailed as e:
        return _complain(str(e), exit_code=1)
    except BrokenPipeError:
        # The reader of our output left (`lockstep predict ... | head`); what Python would still flush goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as e:
        return _complain(f"{e.filename or 'standard output'}: {e.strerror}", exit_code=1)
    except KeyboardInterrupt:
        return _complain("interrupted", exit_code=1)


def _complain(message: str, *, exit_code: int) -> int:
    for line in message.splitlines() or [""]:
        print(f"lockstep: {line}", file=sys.stderr)
    return exit_code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lockstep",
        description="TFX pipelines that train TensorFlow models on data sets too large for one process.",
        epilog="exit codes: 0 done; 1 the run failed; 2 wrong usage, configuration, data; 3 anomalies in the data; "
        "4 the model was not blessed",
    )
    parser.add_argument("--version", action="version", version=f"lockstep {importlib.metadata.version('tfx-lockstep')}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    run = commands.add_parser("run", help="run a pipeline on this machine", description=_RUN)
    run.add_argument("pipeline", metavar="PIPELINE", help="a YAML file, or the name of an example (such as: taxi)")
    _add_workers(run)
    _add_overrides(run, example="train.steps=500")
    run.add_argument(
        "--root", type=pathlib.Path, metavar="DIR", help="where runs are kept (default: lockstep-runs/NAME here)"
    )
    run.add_argument(
        "--force",
        action="append",
        default=[],
        metavar="STEP",
        help="run this step, for example Evaluator, though the cache has its result; may be repeated",
    )
    run.set_defaults(command=_run)

    init = commands.add_parser("init", help="make a project for your own data", description=_INIT)
    init.add_argument("dir", type=pathlib.Path, metavar="DIR", help="the project's folder; its name is the pipeline's")
    init.add_argument(
        "--data", required=True, metavar="PATH", help="CSV, Parquet or JSON lines: file, folder, glob, or a URI"
    )
    init.add_argument("--label", required=True, metavar="COLUMN", help="what the model shall predict")
    init.set_defaults(command=_init)

    tune = commands.add_parser("tune-batch", help="find the quickest batch size on this machine", description=_TUNE)
    tune.add_argument("pipeline", metavar="PIPELINE", help="a YAML file, or the name of an example; run it before")
    _add_workers(tune)
    _add_overrides(tune)
    tune.add_argument(
        "--root", type=pathlib.Path, metavar="DIR", help="where its runs are (default: lockstep-runs/NAME here)"
    )
    tune.add_argument("--minutes", type=float, default=10.0, metavar="M", help="after that no further size is tried")
    tune.set_defaults(command=_tune_batch)

    schema = commands.add_parser("schema", help="keep a reviewed schema of the data", description=_SCHEMA)
    schema.add_argument("action", choices=("infer", "diff", "freeze"), help="print it, compare it, or write it down")
    schema.add_argument("pipeline", metavar="PIPELINE", help="a YAML file, or the name of an example; run it before")
    _add_overrides(schema)
    schema.add_argument(
        "--root", type=pathlib.Path, metavar="DIR", help="where its runs are (default: lockstep-runs/NAME here)"
    )
    schema.set_defaults(command=_schema)

    predict = commands.add_parser("predict", help="predict raw rows by a pushed model", description=_PREDICT)
    predict.add_argument("model_dir", metavar="MODEL_DIR", help="a push folder, or one version in it; also a URI")
    predict.add_argument(
        "--data", required=True, metavar="PATH", help="raw rows, as data.path takes them: file, folder, glob, or a URI"
    )
    predict.add_argument(
        "-o", "--output", type=pathlib.Path, metavar="FILE", help="write there, not to standard output"
    )
    predict.add_argument("--format", choices=FORMATS, help="of the rows (default: by the file's name)")
    predict.add_argument("--delimiter", metavar="CHAR", help="between the cells of CSV (default: ,)")
    predict.add_argument("--encoding", metavar="CODEC", help="of the text of CSV, a Python codec (default: utf-8)")
    predict.add_argument(
        "--null-token",
        action="append",
        dest="null_tokens",
        metavar="TOKEN",
        help="a cell of CSV that means no value, beside the empty one; may be repeated, and replaces the default ones, "
        "which are those of data.options.null_tokens",
    )
    predict.add_argument("--quote", metavar="CHAR", help='encloses cells of CSV (default: "); empty: nothing does')
    predict.add_argument("--no-header", action="store_true", help="the first line of CSV is a row")
    predict.add_argument(
        "--column-name",
        action="append",
        dest="column_names",
        metavar="NAME",
        help="of CSV without header, for each column in order (default: column_1, column_2, ...)",
    )
    predict.add_argument(
        "--skip-bad-rows", action="store_true", help="leave out rows that cannot be read, and name each on stderr"
    )
    predict.set_defaults(command=_predict)

    compiled = commands.add_parser("compile", help="make a package for Kubeflow Pipelines", description=_COMPILE)
    compiled.add_argument("pipeline", metavar="PIPELINE", help="a YAML file, or the name of an example (such as: taxi)")
    compiled.add_argument(
        "-o", "--output", type=pathlib.Path, required=True, metavar="FILE", help="the package, such as package.yaml"
    )
    _add_overrides(compiled, example="kubeflow.image=NAME:TAG")
    compiled.set_defaults(command=_compile)
    _add_emulate(commands)
    _add_submit(commands)
    _add_models(commands)

    doctor = commands.add_parser("doctor", help="look whether this machine can run pipelines", description=_DOCTOR)
    doctor.add_argument(
        "pipeline", metavar="PIPELINE", nargs="?", help="look at this one, too: its data, its code, what it needs"
    )
    _add_overrides(doctor)
    doctor.add_argument(
        "--root", type=pathlib.Path, metavar="DIR", help="where runs are kept (default: lockstep-runs here)"
    )
    doctor.add_argument("--json", action="store_true", help="print a JSON list")
    doctor.set_defaults(command=_doctor)

    report = commands.add_parser("report", help="write a run's report, one HTML file", description=_REPORT)
    report.add_argument(
        "run", type=pathlib.Path, metavar="DIR", help="a run's folder, or a root of runs, whose newest is taken"
    )
    report.add_argument(
        "-o", "--output", type=pathlib.Path, metavar="FILE", help="(default: report.html in the run's folder)"
    )
    report.set_defaults(command=_report)

    runs = commands.add_parser("runs", help="list runs and how they ended", description=_RUNS)
    runs.add_argument(
        "root",
        type=pathlib.Path,
        nargs="?",
        default=pathlib.Path("lockstep-runs"),
        metavar="DIR",
        help="a pipeline's root, as --root names it, or the folder of several (default: lockstep-runs here)",
    )
    runs.add_argument("--json", action="store_true", help="print the same as JSON, with the message of each run")
    runs.set_defaults(command=_runs)
    return parser


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--workers", type=int, metavar="N", help="processes that train together; short for train.workers"
    )


def _add_overrides(parser: argparse.ArgumentParser, *, example: str = "") -> None:
    spelled = f", for example {example}" if example else ""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help=f"override a key of the configuration{spelled}; may be repeated",
    )


def _add_submit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    submit = commands.add_parser("submit", help="give a package to Kubeflow Pipelines", description=_SUBMIT)
    submit.add_argument("package", type=pathlib.Path, metavar="PACKAGE", help="a file that lockstep compile wrote")
    submit.add_argument(
        "--endpoint", metavar="URL", help="of Kubeflow Pipelines' API (default: what KF_PIPELINES_ENDPOINT says)"
    )
    submit.add_argument("--namespace", metavar="NAME", help="yours, on a Kubeflow of several users")
    submit.add_argument("--ca-cert", metavar="FILE", help="certificates that the server's is signed by")
    submit.add_argument("--name", metavar="NAME", help="of the new version, and of the run (default: by the time)")
    submit.add_argument("--run", action="store_true", help="run the new version, too")
    submit.add_argument("--experiment", metavar="NAME", help="for the run; made if absent (default: Default)")
    submit.add_argument(
        "--set",
        action="append",
        default=[],
        dest="parameters",
        metavar="KEY=VALUE",
        help="a run-time parameter of the run, for example train_steps=300; may be repeated",
    )
    submit.add_argument("--wait", action="store_true", help="wait until the run has ended; exit with 1 if it failed")
    submit.set_defaults(command=_submit)


_SUBMIT = """Uploads a package as a new version of the pipeline of its name, and with --run runs it. Who asks is told by
LOCKSTEP_KFP_TOKEN (a bearer token), LOCKSTEP_KFP_COOKIE (a session's cookie), or KF_PIPELINES_SA_TOKEN_PATH (a file
with a service account's token); nothing of them is in the package."""


def _add_emulate(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    emulated = commands.add_parser("emulate", help="run a package here as Kubeflow would", description=_EMULATE)
    emulated.add_argument("package", type=pathlib.Path, metavar="PACKAGE", help="a file that lockstep compile wrote")
    emulated.add_argument(
        "--root",
        type=pathlib.Path,
        metavar="DIR",
        help="where everything is kept: object store, cache, logs (default: lockstep-runs/NAME-kubeflow here)",
    )
    emulated.add_argument(
        "--set",
        action="append",
        default=[],
        dest="parameters",
        metavar="KEY=VALUE",
        help="a run-time parameter of the package, for example train_steps=300; may be repeated",
    )
    emulated.add_argument(
        "--store",
        metavar="URL",
        help="a real S3 service in place of a folder, http://HOST:PORT; its credentials are those of the secret"
        " mlpipeline-minio-artifact below DIR/secrets, else AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    )
    emulated.add_argument("--pipeline-root", metavar="URI", help="where artifacts are kept (default: the package's)")
    emulated.add_argument("--kfp-version", metavar="2.N", help="the Kubeflow Pipelines that is followed")
    emulated.add_argument(
        "--docker", action="store_true", help="run each step in a container of the package's image, not as a process"
    )
    emulated.add_argument(
        "--working-dir",
        type=pathlib.Path,
        metavar="DIR",
        help="your project's folder, which stands for the image's working folder: your own modules are found there",
    )
    emulated.set_defaults(command=_emulate)


_EMULATE = """Runs a package on this machine as Kubeflow Pipelines would: the same inputs, commands, retries, cache and
checks, a process or a container a step. Exits with 1 where a step failed, and shows the end of its log."""


def _add_models(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    models = commands.add_parser("models", help="list, roll back or promote what is pushed", description=_MODELS)
    actions = models.add_subparsers(title="actions", metavar="ACTION", required=True)
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("dir", metavar="DIR", help="a push folder, as push.dir names it; also a URI")

    listed = actions.add_parser(
        "list", help="the versions, and which is served", description=_MODELS_LIST, parents=[folder]
    )
    listed.add_argument("--json", action="store_true", help="print all that the manifests say, as JSON")
    listed.set_defaults(command=_models_list)

    rollback = actions.add_parser(
        "rollback", help="serve what was served before", description=_MODELS_ROLLBACK, parents=[folder]
    )
    rollback.set_defaults(command=_models_rollback)

    promote = actions.add_parser(
        "promote", help="serve a version of your choice", description=_MODELS_PROMOTE, parents=[folder]
    )
    promote.add_argument("version", type=int, nargs="?", default=0, help="its number (default: the one served)")
    promote.add_argument("--to", metavar="DIR", help="another push folder, to be served there")
    promote.set_defaults(command=_models_promote)


_MODELS = """What push.dir holds. A server that takes the highest version, as TensorFlow Serving does, follows each
change without being told: an earlier model is served again as a new version, whole or not at all."""

_MODELS_LIST = """Prints the versions in a push folder, oldest first, with the metrics that each was pushed with; the
served one is marked by a star."""

_MODELS_ROLLBACK = """Serves what was served before the present model. That model stays in the folder, and no run pushes
it again unless it is promoted. Called again, this goes back further."""

_MODELS_PROMOTE = """Serves one version's model, in the same folder or, with --to, in another one, for example from a
folder for trials to the one that is served to all. One that was rolled back counts as good again."""


_DOCTOR = """Looks at packages, processor, memory, disk, ports, limits and devices, and says of each what is there
and, where something is wrong, what to do. Exits with 1 where a run would fail."""

_RUNS = """Prints the runs of one or several pipelines, oldest first: when each began, how it ended or where it is, and
the step that it came to. The same `lockstep run` goes on where one failed or was killed."""

_REPORT = """Writes what `lockstep run` writes at its end: pipeline, data, training, evaluation and lineage of a run on
one page that loads nothing. Of any run: one that goes on, failed or was killed, too."""

_RUN = """Runs ExampleGen, StatisticsGen, SchemaGen, ExampleValidator, Transform, DistributedTrainer, Evaluator and
Pusher. A step whose inputs, configuration and code are unchanged is taken from the cache."""

_INIT = """Writes a pipeline with a feature for each column that could tell something, and why it was picked, a model
to change, unit tests and a README. `lockstep run` on the pipeline works at once."""

_TUNE = """Trains for some seconds with one batch size after the other, each in processes of its own, on the data that
the last run of the pipeline transformed. Prints examples/s and memory of each, and which train.batch_size to set."""

_PREDICT = """Writes CSV with the column "prediction", a line for every raw row, in the order of the rows: a probability
for a binary label, else the value. The newest version in a push folder is taken."""


_SCHEMA = """What each column of the data is expected to be. infer prints the schema of the newest run's training split;
freeze writes it beside the YAML file, where it can be reviewed, changed and committed, and every later run is checked
against it; diff says where the newest data differ from it, and ends with 1 if they do."""


_COMPILE = """Writes the pipeline as open-source Kubeflow Pipelines 2 takes it, or says what Kubeflow would refuse, and
which key mends it. The same configuration and code give the same bytes."""


def _run(options: argparse.Namespace) -> int:
    from lockstep.pipelines.config import load_config
    from lockstep.pipelines.console import Console
    from lockstep.pipelines.run import run_pipeline

    overrides = list(options.overrides)
    if options.workers is not None:
        overrides.append(f"train.workers={options.workers}")
    source, root = load_config(options.pipeline, overrides=overrides, root=options.root)
    finished = run_pipeline(source, root, Console(sys.stdout, command=_own_name()), options.force)
    if finished.exit_code:
        _complain(finished.message, exit_code=finished.exit_code)
    return finished.exit_code


def _init(options: argparse.Namespace) -> int:
    with _quiet_imports():
        from lockstep.pipelines.new_project.project import make_project
    for line in make_project(options.dir, options.data, options.label):
        print(line)
    print(f"next: {_own_name()} run {shlex.quote(str(options.dir / 'pipeline.yaml'))}")
    return 0


def _tune_batch(options: argparse.Namespace) -> int:
    from lockstep.pipelines.config import load_config

    if not options.minutes > 0:
        raise UserError(f"--minutes {options.minutes:g} is not allowed; give a number above 0")
    overrides = list(options.overrides)
    if options.workers is not None:
        overrides.append(f"train.workers={options.workers}")
    source, root = load_config(options.pipeline, overrides=overrides, root=options.root)
    with _quiet_imports():
        from lockstep.pipelines.batch_tuning import tune_batch

    best = tune_batch(source, root, limit_s=60 * options.minutes, show=lambda line: print(line, flush=True))
    return 0 if best else 1


def _schema(options: argparse.Namespace) -> int:
    from lockstep.pipelines import reviewed_schema
    from lockstep.pipelines.config import load_config

    source, root = load_config(options.pipeline, overrides=options.overrides, root=options.root)
    if options.action == "diff" and source.config.schema is None:
        raise UserError(f"{options.pipeline}: has no schema yet; make one by lockstep schema freeze {options.pipeline}")
    if options.action == "freeze" and source.folder is None:
        raise UserError(f"{options.pipeline}: an example's file stays as it is; copy it and give the copy")
    with _quiet_imports():
        import tensorflow_data_validation as tfdv  # noqa: F401 - what follows imports it where it is needed
    inferred = reviewed_schema.infer(root)
    if options.action == "infer":
        print(reviewed_schema.to_text(inferred), end="")
        return 0
    if options.action == "freeze":
        path = reviewed_schema.freeze(pathlib.Path(options.pipeline), inferred)
        print(f"schema: {path}, and {options.pipeline} names it; review both and commit them")
        return 0
    lines = list(reviewed_schema.differences(reviewed_schema.parse(str(source.config.schema)), inferred))
    print("\n".join(lines) or "no difference")
    return 1 if lines else 0


def _submit(options: argparse.Namespace) -> int:
    from lockstep.components.errors import ConfigurationError
    from lockstep.pipelines.kubeflow import submission
    from lockstep.pipelines.kubeflow.client import Connection
    from lockstep.pipelines.kubeflow.server import Server

    given = {"--experiment": options.experiment, "--set": options.parameters, "--wait": options.wait}
    if not options.run and any(given.values()):
        raise ConfigurationError(f"{next(flag for flag, value in given.items() if value)}: needs --run")
    server = Server.from_environ(
        os.environ, endpoint=options.endpoint, namespace=options.namespace, ca_file=options.ca_cert
    )
    package = submission.read_package(options.package)
    arguments = submission.run_arguments(package, options.parameters) if options.run else {}
    connection = Connection(server)
    handler = _WarningsShown(str)
    logging.getLogger("lockstep").addHandler(handler)
    left = f"a new version may be there: look at {connection.link('pipelines')}"
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        version = submission.upload(connection, package, options.name)
        print(f"version: {version.link}", flush=True)
        if not options.run:
            return 0
        left = f"the version is there, a run of it may be: look at {connection.link('runs')}"
        run = submission.start(
            connection,
            package,
            version,
            name=options.name,
            experiment=options.experiment or "Default",
            arguments=arguments,
        )
        left = f"the run goes on: {run.link}"
        print(f"run:     {run.link}", flush=True)
        if options.wait:
            submission.wait(connection, run, lambda line: print(f"  {line}", flush=True))
            print("done")
        return 0
    except KeyboardInterrupt as e:
        raise StepFailed(f"interrupted; {left}") from e
    finally:
        signal.signal(signal.SIGTERM, previous)
        logging.getLogger("lockstep").removeHandler(handler)


def _own_name() -> str:
    """Returns how this command line can be called again: by its name where the path finds it, else by its file."""
    called = pathlib.Path(sys.argv[0])
    found = shutil.which("lockstep")
    if called.name != "lockstep" or (found and pathlib.Path(found).resolve() == called.resolve()):
        return "lockstep"
    return (
        os.path.relpath(called) if called.is_absolute() and called.is_relative_to(pathlib.Path.cwd()) else str(called)
    )


def _predict(options: argparse.Namespace) -> int:
    with _quiet_imports():
        import tensorflow as tf  # noqa: F401 - what follows imports it where it is needed

        from lockstep.pipelines.prediction import in_terms_of_flags, row_options, write_predictions

    data = row_options(
        options.data,
        format=options.format,
        delimiter=options.delimiter,
        encoding=options.encoding,
        null_tokens=options.null_tokens,
        quote=options.quote,
        header=False if options.no_header else None,
        column_names=options.column_names,
        on_error="quarantine" if options.skip_bad_rows else "fail",
    )
    logger, handler = logging.getLogger("lockstep"), _WarningsShown(in_terms_of_flags)
    logger.addHandler(handler)
    try:
        write_predictions(options.model_dir, data, sys.stdout if options.output is None else options.output)
    finally:
        logger.removeHandler(handler)
    return 0


def _doctor(options: argparse.Namespace) -> int:
    from lockstep.pipelines import doctor
    from lockstep.pipelines.config import load_config

    source, root = None, (options.root or pathlib.Path("lockstep-runs")).absolute()
    if options.pipeline is not None:
        source, root = load_config(options.pipeline, overrides=options.overrides, root=options.root)
    findings = []
    for finding in doctor.examine(source, root):
        findings.append(finding)
        if not options.json:
            print(doctor.line(finding), flush=True)
    print(json.dumps([dataclasses.asdict(f) for f in findings], indent=2) if options.json else doctor.verdict(findings))
    return int(any(finding.state == "problem" for finding in findings))


def _runs(options: argparse.Namespace) -> int:
    from lockstep.pipelines import run_list

    print(
        json.dumps(run_list.describe_runs(options.root), indent=2) if options.json else run_list.list_runs(options.root)
    )
    return 0


def _report(options: argparse.Namespace) -> int:
    from lockstep.components.errors import ConfigurationError
    from lockstep.pipelines.report import report, run_record

    files = run_record.find_run(options.run)
    path = files.report_path if options.output is None else options.output
    try:
        report.write_report(files, path)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as e:
        reason = f"{path}: {e.strerror}; give a file in a folder that can be written"
        raise ConfigurationError(f"--output {reason}") from e
    print(path)
    return 0


def _models_list(options: argparse.Namespace) -> int:
    from lockstep.pipelines import models

    print(
        json.dumps(models.describe_models(options.dir), indent=2) if options.json else models.list_models(options.dir)
    )
    return 0


def _models_rollback(options: argparse.Namespace) -> int:
    from lockstep.pipelines import models

    print(models.rollback(options.dir))
    return 0


def _models_promote(options: argparse.Namespace) -> int:
    from lockstep.components.errors import ConfigurationError
    from lockstep.pipelines import models

    if not options.version and options.to is None:
        raise ConfigurationError("promote: name a version, or give --to DIR")
    print(models.promote(options.dir, options.version, options.to))
    return 0


def _compile(options: argparse.Namespace) -> int:
    from lockstep.components.errors import ConfigurationError
    from lockstep.pipelines.config import load_package_config

    source = load_package_config(options.pipeline, overrides=options.overrides)
    if all(path.exists() for path in (options.output, pathlib.Path(options.pipeline))) and options.output.samefile(
        options.pipeline
    ):
        raise ConfigurationError(f"-o {options.output}: is the configuration itself; give another file")
    with _quiet_imports():
        from lockstep.pipelines.kubeflow.compiler import compile_package, summary

    package = compile_package(source)
    package.write(options.output)
    print(summary(package, options.output, source, command=_own_name()))
    return 0


def _emulate(options: argparse.Namespace) -> int:
    from lockstep.components.errors import ConfigurationError
    from lockstep.pipelines.console import Console
    from lockstep.pipelines.kubeflow.emulator.options import EmulateOptions
    from lockstep.pipelines.kubeflow.package import Package

    for override in options.parameters:
        if "=" not in override:
            raise ConfigurationError(f"--set {override[:60]}: give KEY=VALUE")
    chosen = {"kfp_version": options.kfp_version} if options.kfp_version else {}
    try:
        emulate_options = EmulateOptions(
            root=options.root,
            parameters=dict(override.split("=", 1) for override in options.parameters),
            store=options.store,
            pipeline_root=options.pipeline_root,
            docker=options.docker,
            working_dir=options.working_dir,
            **chosen,
        )
    except ValueError as e:
        raise ConfigurationError(f"--{str(e).replace('_', '-', 1)}") from e
    package = Package.read(options.package)
    _silence_third_parties()
    from lockstep.pipelines.kubeflow.emulator.run import emulate

    finished = emulate(package, emulate_options, Console(sys.stdout, command=_own_name()), str(options.package))
    if finished.exit_code:
        _complain(finished.message, exit_code=finished.exit_code)
    return finished.exit_code


def _silence_third_parties() -> None:
    """Keeps off the terminal what is not the user's to mend; errors still come as exceptions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    # Google's libraries announce the end of a Python that Lockstep still supports.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"google\.")


@contextlib.contextmanager
def _quiet_imports() -> Iterator[None]:
    """Keeps file descriptor 2 off the terminal: newer TensorFlow writes there at import whatever its log level."""
    _silence_third_parties()
    sys.stderr.flush()
    terminal = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            with collector_off():
                yield
        except BaseException:
            written.seek(0)
            os.write(terminal, written.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


class _WarningsShown(logging.Handler):
    """Prints warnings as the command line prints errors."""

    def __init__(self, rephrase: Callable[[str], str]) -> None:
        super().__init__(logging.WARNING)
        self._rephrase = rephrase

    def emit(self, record: logging.LogRecord) -> None:
        print(f"lockstep: {record.levelname.lower()}: {self._rephrase(record.getMessage())}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
