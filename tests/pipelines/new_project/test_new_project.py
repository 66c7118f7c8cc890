"""What `lockstep init` picks for tables of many kinds, and that what it writes works."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn import datasets

from lockstep.components.errors import ConfigurationError, DataError
from lockstep.pipelines.config import PipelineConfig, load_config
from lockstep.pipelines.new_project.project import make_project, project_name
from tests.pipelines.conftest import Project

_TAXI = "package:tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"


def _sklearn(name: str, folder: Path) -> str:
    options = {"scaled": False} if name == "diabetes" else {}
    path = folder / f"{name}.csv"
    getattr(datasets, f"load_{name}")(as_frame=True, **options).frame.to_csv(path, index=False)
    return str(path)


def _texts(folder: Path) -> str:
    """Reviews whose words tell whether they are good, and a key."""
    made = random.Random(1)
    words = {"yes": ["fine", "great", "good"], "no": ["poor", "bad", "dull"]}
    lines = ["key,review,liked"]
    for number in range(1500):
        liked = made.choice(["yes", "yes", "no"])
        text = " ".join(
            made.choice([*words[liked], *(f"word{made.randrange(400)}" for _ in range(3))]) for _ in range(9)
        )
        lines.append(f"k{number:05d},{text},{liked}")
    return _written(folder / "texts.csv", lines)


def _dates(folder: Path) -> str:
    """Sales by time, higher on Saturdays; the rows are numbered."""
    made = random.Random(2)
    lines = ["row,sold_at,shop,sales"]
    for number in range(900):
        day, hour = 1 + number % 28, number % 24
        sales = 20 + 15 * (day % 7 == 6) + made.gauss(0, 1)
        lines.append(f"{number},2023-04-{day:02d}T{hour:02d}:15:00,shop {made.randrange(4)},{sales:.2f}")
    return _written(folder / "dates.csv", lines)


def _gaps(folder: Path) -> str:
    """Columns without most of their values, or any; a label without some of its own."""
    made = random.Random(3)
    lines = ["x,rare,never,same,y"]
    for _ in range(600):
        x = made.gauss(0, 1)
        rare = f"{made.gauss(0, 1):.3f}" if made.random() < 0.05 else ""
        lines.append(f"{x:.3f},{rare},,7,{'' if made.random() < 0.1 else int(x > 0)}")
    return _written(folder / "gaps.csv", lines)


def _lists(folder: Path) -> str:
    """Parquet with lists of tags."""
    made = random.Random(4)
    tags = [[f"tag{made.randrange(5)}" for _ in range(made.randrange(4))] for _ in range(400)]
    table = pa.table(
        {"tags": tags, "n": [len(each) for each in tags], "score": [float(len(each)) + 0.5 for each in tags]}
    )
    pq.write_table(table, folder / "lists.parquet")
    return str(folder / "lists.parquet")


def _written(path: Path, lines: list[str]) -> str:
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return str(path)


# Name -> where the data are, the label, its kind, and kinds of some columns; None is one that is left out.
_TABLES = {
    "breast_cancer": (lambda f: _sklearn("breast_cancer", f), "target", "binary", {"mean radius": "numeric"}),
    "wine": (lambda f: _sklearn("wine", f), "target", "multiclass", {"od280/od315_of_diluted_wines": "numeric"}),
    "diabetes": (lambda f: _sklearn("diabetes", f), "target", "regression", {"age": "numeric"}),
    "iris": (lambda f: _sklearn("iris", f), "target", "multiclass", {"petal width (cm)": "numeric"}),
    "taxi": (lambda f: _TAXI, "payment_type", "multiclass", {"company": "vocabulary", "trip_start_hour": "integer"}),
    "texts": (_texts, "liked", "binary", {"key": None, "review": "text"}),
    "dates": (_dates, "sales", "regression", {"row": None, "sold_at": "timestamp", "shop": "vocabulary"}),
    "gaps": (_gaps, "y", "binary", {"x": "numeric", "rare": "numeric", "never": None, "same": None}),
    "lists": (_lists, "score", "regression", {"tags": "list"}),
}


def _config(folder: Path) -> PipelineConfig:
    source, _ = load_config(str(folder / "pipeline.yaml"), root=folder / "root")
    return source.config


@pytest.mark.parametrize("name", _TABLES)
def test_label_and_features_are_picked_by_what_the_columns_hold(name: str, tmp_path: Path) -> None:
    """The YAML is a whole configuration, and each column is in it, or left out with a reason."""
    data, label, kind, expected = _TABLES[name]
    make_project(tmp_path / name, data(tmp_path), label)
    config = _config(tmp_path / name)
    assert config.label.column == label
    assert config.label.kind == kind
    assert label not in config.features
    found = {column: getattr(config.features.get(column), "kind", None) for column in expected}
    assert found == expected
    text = (tmp_path / name / "pipeline.yaml").read_text()
    for column, picked in expected.items():
        assert picked is not None or f"# {column}: left out, " in text


def test_a_missing_label_is_left_out_and_told(tmp_path: Path) -> None:
    """As ExampleGen would else stop at the first."""
    make_project(tmp_path / "gaps", _gaps(tmp_path), "y")
    assert _config(tmp_path / "gaps").label.missing == "drop"
    assert "of 600 rows have none, and are left out" in (tmp_path / "gaps" / "pipeline.yaml").read_text()


def test_what_a_model_must_reach_is_what_a_guess_does(tmp_path: Path) -> None:
    """The share of the most frequent class, and the deviation from the mean: checked by hand."""
    data = _written(tmp_path / "rows.csv", ["x,y", *(f"{i},{'abc'[min(2, i // 3)]}" for i in range(12))])
    make_project(tmp_path / "classes", data, "y")
    assert _config(tmp_path / "classes").evaluate.thresholds["accuracy"].min == 0.5
    data = _written(tmp_path / "values.csv", ["x,y", *(f"{i},{i % 2 * 4 + 0.5}" for i in range(1, 13))])
    with_three = Path(data).read_text().replace("12,0.5", "12,2.5").replace("11,4.5", "11,2.5")
    Path(data).write_text(with_three)
    make_project(tmp_path / "values", data, "y")
    assert _config(tmp_path / "values").evaluate.thresholds["rmse"].max == pytest.approx(1.826, abs=1e-3)


@pytest.mark.parametrize(
    ("rows", "label", "message"),
    [
        (["a,b", "1,2"], "c", "has no column 'c'"),
        (["a,b", "1,2", "2,2"], "b", "has one value in all rows"),
        (["a,b"], "b", "has no rows"),
        (["a,b", *(f"{i},text {i}" for i in range(200))], "b", "has 200 different texts; a label has 100 classes"),
        (["a,b", *(f"{i},2020-01-{i:02d}" for i in range(10, 29))], "b", "holds date; a label is a number"),
        (["a,b", "7,0", "7,1"], "b", "no column that could tell anything"),
    ],
)
def test_what_is_no_label_is_refused(rows: list[str], label: str, message: str, tmp_path: Path) -> None:
    """With the reason, and nothing is written."""
    data = _written(tmp_path / "rows.csv", rows)
    with pytest.raises(DataError, match=message):
        make_project(tmp_path / "project", data, label)
    assert not (tmp_path / "project").exists()


def test_a_project_that_is_there_is_left_alone(tmp_path: Path) -> None:
    """Even where only one of its files is."""
    data = _written(tmp_path / "rows.csv", ["x,y", *(f"{i * i},{i % 2}" for i in range(30))])
    make_project(tmp_path / "mine", data, "y")
    (tmp_path / "mine" / "pipeline.yaml").unlink()
    with pytest.raises(ConfigurationError, match=r"mine_model\.py: is there already"):
        make_project(tmp_path / "mine", data, "y")
    assert not (tmp_path / "mine" / "pipeline.yaml").exists()


@pytest.mark.parametrize(("folder", "name"), [("My data!", "My-data"), ("2024", "2024"), ("x" * 99, "x" * 63)])
def test_the_pipeline_is_called_like_its_folder(folder: str, name: str, tmp_path: Path) -> None:
    """As far as a pipeline can be."""
    assert project_name(tmp_path / folder) == name


def test_a_folder_whose_name_has_no_letters_is_refused(tmp_path: Path) -> None:
    """There is nothing to call the pipeline."""
    with pytest.raises(ConfigurationError, match="gives the pipeline no name"):
        project_name(tmp_path / "---")


def test_example_rows_are_from_everywhere(tmp_path: Path) -> None:
    """A file that is sorted by the label gives rows of each class; types are those of the examples."""
    make_project(tmp_path / "wine", _sklearn("wine", tmp_path), "target")
    example = json.loads((tmp_path / "wine" / "example_rows.json").read_text())
    assert {row["target"] for row in example["rows"]} == {0, 1, 2}
    assert example["types"]["alcohol"] == "float"
    assert 20 < len(example["rows"]) < 100


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dates"])  # each takes a minute
def test_the_project_runs_and_its_tests_pass(name: str, tmp_path: Path) -> None:
    """From the data to a pushed model that is better than a guess, as a user calls it; and the unit tests."""
    data, label, _, _ = _TABLES[name]
    project = Project(tmp_path)
    done = project.lockstep("init", "mine", "--data", data(tmp_path), "--label", label)
    assert done.returncode == 0, done.stderr
    assert "next: " in done.stdout
    ended = project.lockstep("run", "mine/pipeline.yaml", "--root", "root", "--set", "train.steps=150")
    assert ended.returncode == 0, ended.stderr
    assert [path.name for path in (tmp_path / "root" / "pushed").iterdir() if path.name.isdigit()]
    tested = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "mine"], check=False, capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
    )  # fmt: skip
    assert tested.returncode == 0, tested.stdout
    assert "2 passed" in tested.stdout
