"""`lockstep predict`: how rows are read, where predictions go, and what is said about either."""

import csv
import json
import os
import pathlib
import subprocess
import sys
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lockstep.pipelines import cli
from tests.components.evaluator.class_model import save_class_model
from tests.components.evaluator.tiny_model import save_model

ROWS = "x,kind,size\n0,a,1\n1,b,2\n"
PREDICTED = "prediction\n0.5\n0.731058598\n"


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that predicts sigmoid(x), and says that it reads x, kind and size."""
    return str(save_model(tmp_path_factory.mktemp("model")))


@pytest.fixture
def rows_path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Two rows as they should be."""
    path = tmp_path / "rows.csv"
    path.write_text(ROWS)
    return path


def test_a_dialect_of_csv_is_read_as_the_flags_say(
    model_dir: str, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the pipeline's data.options do for training; tokens replace the default ones."""
    rows_path.write_bytes("x;kind;size\n?;käse;1\n1;b;none\n".encode("utf-16"))
    flags = ["--delimiter", ";", "--encoding", "utf-16", "--null-token", "?", "--null-token=none"]
    assert cli.main(["predict", model_dir, "--data", str(rows_path), *flags]) == 0
    assert capsys.readouterr() == (PREDICTED, "")


def test_a_class_comes_with_the_probability_of_each(
    tmp_path: pathlib.Path, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By their names, in the order of the model's predictions."""
    model = save_class_model(tmp_path / "classes", slopes=(-1.0, 0.0, 1.0), classes=("low", "a,b", "hé"))
    assert cli.main(["predict", str(model), "--data", str(rows_path)]) == 0
    header, *answers = csv.reader(capsys.readouterr().out.splitlines())
    assert header == ["prediction", "p(low)", "p(a,b)", "p(hé)"]
    assert [answer[0] for answer in answers] == ["low", "hé"]
    assert [float(value) for value in answers[0][1:]] == pytest.approx([1 / 3] * 3, rel=1e-6)
    assert [float(value) for value in answers[1][1:]] == pytest.approx([0.09003057, 0.24472847, 0.66524096], rel=1e-6)


def test_the_format_may_be_told(model_dir: str, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the name does not tell it."""
    rows_path = rows_path.rename(rows_path.with_suffix(".data"))
    assert cli.main(["predict", model_dir, "--data", str(rows_path)]) == 2
    assert "give --format (csv, parquet, json, tfrecord, images, image_list)" in capsys.readouterr().err
    assert cli.main(["predict", model_dir, "--data", str(rows_path), "--format", "csv"]) == 0
    assert capsys.readouterr().out == PREDICTED
    rows = list(csv.DictReader(rows_path.read_text().splitlines()))
    rows_path.write_text("".join(json.dumps({k: _number(v) for k, v in row.items() if v}) + "\n" for row in rows))
    assert cli.main(["predict", model_dir, "--data", str(rows_path), "--format", "json"]) == 0
    assert capsys.readouterr().out == PREDICTED


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def test_a_model_knows_which_of_its_columns_are_times(
    tmp_path: pathlib.Path, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And how they are written, without any flag; one that is none is named."""
    model = save_model(tmp_path / "model")
    path = model / "assets.extra" / "lockstep.json"
    contract = json.loads(path.read_text())
    rows_path.write_text("x,kind,size\n0,a,31.12.2023\n1,b,\n")
    assert cli.main(["predict", str(model), "--data", str(rows_path)]) == 2
    assert "rows.csv:2: column 'size': '31.12.2023' is not an int" in capsys.readouterr().err
    written = {
        "types": {"size": "date"},
        "time_formats": {"size": "%d.%m.%Y"},
        "time_zone": "UTC",
        "list_separator": "",
    }
    path.write_text(json.dumps(contract | {"raw_columns": written}))
    assert cli.main(["predict", str(model), "--data", str(rows_path)]) == 0
    assert capsys.readouterr() == (PREDICTED, "")
    rows_path.write_text("x,kind,size\n0,a,32.12.2023\n")
    assert cli.main(["predict", str(model), "--data", str(rows_path)]) == 2
    assert "rows.csv:2: column 'size': '32.12.2023' is no date" in capsys.readouterr().err
    path.write_text(json.dumps(contract | {"raw_columns": {"types": {"size": "aeon"}}}))
    assert cli.main(["predict", str(model), "--data", str(rows_path)]) == 2
    assert "cannot be asked about raw rows by this version (types.size: 'aeon'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (ROWS, ["--delimiter", ";;"], "--delimiter: ';;' is not allowed; give one character"),
        (ROWS, ["--encoding", "utf-9"], "--encoding: 'utf-9' is not allowed; give a Python codec"),
        (ROWS, ["--data", ""], "--data: '' is not allowed; give a file, folder or glob"),
        (ROWS, ["--data", "{}x"], "--data: no such file: {}x; did you mean 'rows.csv'?"),
        (ROWS, ["--data", "/dev/zero"], "--data: not a regular file: /dev/zero"),
        ("x;size\n1;1\n", [], "{}:1: one column, 'x;size'; the delimiter seems to be ';', not ',': give --delimiter"),
        (b"x,kind\n1,k\xe4se\n", [], "{}:2: byte 0xe4 is not utf-8; give --encoding, such as 'latin-1' or 'cp1252'"),
        (
            "x,kind,size\n?,a,1\n",
            [],
            "{}:2: column 'x': '?' is not a float; mend the cell, or give it as --null-token; or give --skip-bad-rows",
        ),
        (ROWS, ["--column-name", "x"], "--column-name: not allowed where the file has a header; give --no-header, or"),
        ("x,kind,size\n", [], "{}: no rows"),
        ("", [], "{}: no rows, not even a header"),
    ],
)  # fmt: skip
def test_a_fault_is_one_message_in_terms_of_the_flags(
    model_dir: str,
    rows_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    content: str | bytes,
    flags: list[str],
    message: str,
) -> None:
    """Nothing is on standard output, not even the header."""
    rows_path.write_bytes(content.encode() if isinstance(content, str) else content)
    flags = [flag.format(rows_path) for flag in flags]
    assert cli.main(["predict", model_dir, "--data", str(rows_path), *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"lockstep: {message.format(rows_path)}")
    assert captured.err.count("\n") == 1
    assert "data." not in captured.err


def test_rows_that_cannot_be_read_are_left_out_on_request(
    model_dir: str, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named, so that the others can be told by their order."""
    header, *rows = ROWS.splitlines()
    rows_path.write_text("\n".join([header, "?,a,1", rows[0], "1,a", *rows[1:], ""]))
    assert cli.main(["predict", model_dir, "--data", str(rows_path), "--skip-bad-rows"]) == 0
    captured = capsys.readouterr()
    assert captured.out == PREDICTED
    first, second = captured.err.splitlines()
    assert first.startswith(
        f"lockstep: warning: left out: {rows_path}:2: column 'x': '?' is not a float; mend the cell"
    )
    assert second.startswith(f"lockstep: warning: left out: {rows_path}:4: 2 cells, but the header has 3 columns")


def test_files_without_a_header_and_with_other_quotes_are_read(
    model_dir: str, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the pipeline read them."""
    header, *rows = ROWS.splitlines()
    cells = [line.split(",") for line in rows]
    rows_path.write_text("".join(",".join(f"'{cell}'" if cell else "" for cell in row) + "\n" for row in cells))
    names = [f"--column-name={name}" for name in header.split(",")]
    assert cli.main(["predict", model_dir, "--data", str(rows_path), "--no-header", "--quote='", *names]) == 0
    assert capsys.readouterr() == (PREDICTED, "")


def test_a_parquet_value_of_another_type_is_told_without_keys_of_a_pipeline(
    model_dir: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The model tells the types, so none can be declared."""
    path = tmp_path / "rows.parquet"
    columns = {"x": pa.array(["1", "y"]), "kind": pa.array(["a", "b"]), "size": pa.array([1, 2])}
    pq.write_table(pa.table(columns), path)
    assert cli.main(["predict", model_dir, "--data", str(path)]) == 2
    assert capsys.readouterr() == (
        "",
        f"lockstep: {path}, row 2: column 'x': 'y' is not a float; mend it; or give --skip-bad-rows\n",
    )
    pq.write_table(pa.table({**columns, "x": pa.array([{"a": 1.0}, None])}), path)
    assert cli.main(["predict", model_dir, "--data", str(path)]) == 2
    assert f"lockstep: {path}: column 'x' is of type struct" in capsys.readouterr().err


def test_warnings_are_told_as_errors_are(
    model_dir: str, rows_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, each once, without advice that does not fit."""
    rows_path.write_text("x,kind,\n16777217,a,\n")
    assert cli.main(["predict", model_dir, "--data", str(rows_path)]) == 0
    captured = capsys.readouterr()
    assert captured.out == "prediction\n1\n"
    loss = "16777217 becomes 16777216.0 as float32, which holds whole numbers up to 16777216 exactly"
    assert captured.err.splitlines() == [
        f"lockstep: warning: {rows_path} has no column size: missing in every row",
        f"lockstep: warning: {rows_path}: 1 column(s) without name and values are dropped",
        f"lockstep: warning: {rows_path}:2: column 'x': {loss}",
    ]


def _predict(model_dir: str, rows_path: pathlib.Path, output: pathlib.Path) -> int:
    return cli.main(["predict", model_dir, "--data", str(rows_path), "-o", str(output)])


def test_a_file_is_replaced_and_keeps_its_mode(model_dir: str, rows_path: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """What others may do with it is its owner's choice."""
    output = tmp_path / "out.csv"
    output.write_text("older")
    output.chmod(0o640)
    assert _predict(model_dir, rows_path, output) == 0
    assert output.read_text() == PREDICTED
    assert output.stat().st_mode & 0o7777 == 0o640
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "rows.csv"]


def test_a_new_file_has_the_mode_of_any_new_file(
    model_dir: str, rows_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """As the umask says, not as a temporary file's."""
    before = os.umask(0o027)
    try:
        assert _predict(model_dir, rows_path, tmp_path / "out.csv") == 0
    finally:
        os.umask(before)
    assert (tmp_path / "out.csv").stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_its_target_is_written(
    model_dir: str, rows_path: pathlib.Path, tmp_path: pathlib.Path, there: bool
) -> None:
    """In the target's folder, also where the target is yet to be."""
    (tmp_path / "results").mkdir()
    target, link = tmp_path / "results" / "out.csv", tmp_path / "link.csv"
    if there:
        target.write_text("older")
    link.symlink_to("results/out.csv")
    assert _predict(model_dir, rows_path, link) == 0
    assert link.is_symlink()
    assert target.read_text() == PREDICTED
    assert [path.name for path in target.parent.iterdir()] == ["out.csv"]


@pytest.mark.parametrize("linked", [True, False])
def test_a_pipe_is_written_to_and_stays(
    model_dir: str, rows_path: pathlib.Path, tmp_path: pathlib.Path, linked: bool
) -> None:
    """So is a device: a file in its place would take it away from all programs."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    output = pipe
    if linked:
        output = tmp_path / "link"
        output.symlink_to(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    assert _predict(model_dir, rows_path, output) == 0
    reader.join(timeout=30)
    assert received == [PREDICTED]
    assert pipe.is_fifo()
    assert output.is_symlink() == linked


def test_nothing_is_left_of_a_file_whose_rows_fail(
    model_dir: str, rows_path: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """What was there stays."""
    output = tmp_path / "out.csv"
    output.write_text("older")
    rows_path.write_text("x,kind,size\n?,a,1\n")
    assert _predict(model_dir, rows_path, output) == 2
    assert output.read_text() == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "rows.csv"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("", "is a folder; give a file"), ("nowhere/out.csv", "No such file"), ("rows.csv/x", "Not a")],
)
def test_a_place_where_no_file_can_be_is_named(
    model_dir: str,
    rows_path: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    message: str,
) -> None:
    """With the flag."""
    assert _predict(model_dir, rows_path, tmp_path / name) == 2
    assert capsys.readouterr().err.startswith(f"lockstep: --output {tmp_path / name}: {message}")


@pytest.mark.slow
def test_a_process_of_its_own_says_nothing_but_predictions(model_dir: str, rows_path: pathlib.Path) -> None:
    """No library's warnings or banners, whatever Python's defaults show."""
    command = [sys.executable, "-m", "lockstep.pipelines.cli", "predict", model_dir, "--data", str(rows_path)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.stdout, result.stderr, result.returncode) == (PREDICTED, "", 0)
