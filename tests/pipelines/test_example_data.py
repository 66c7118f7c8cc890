"""Data that an example writes for itself."""

import csv
import gzip
import io
import pathlib

import numpy as np
import pytest
from PIL import Image
from sklearn import datasets

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import load_config, load_package_config
from lockstep.pipelines.example_data import draw_shapes, example_data, png


def test_digits_are_scikit_learns_in_a_folder_for_each(tmp_path: pathlib.Path) -> None:
    """Every pixel, read by another library; the second call finds them and writes nothing."""
    folder = pathlib.Path(example_data("example:digits", tmp_path))
    digits = datasets.load_digits()
    files = sorted(folder.glob("*/*.png"), key=lambda path: path.name)
    assert [int(path.parent.name) for path in files] == digits.target.tolist()
    found = np.stack([np.asarray(Image.open(path)) for path in files])
    np.testing.assert_array_equal(found, np.round(digits.images * 255 / 16))
    written = files[0].stat().st_mtime_ns
    assert example_data("example:digits", tmp_path) == str(folder)
    assert files[0].stat().st_mtime_ns == written
    assert [path.name for path in folder.parent.iterdir()] == ["digits"]


def test_a_failure_leaves_nothing(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next run writes all."""

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gzip, "open", fail)
    with pytest.raises(KeyboardInterrupt):
        example_data("example:digits", tmp_path)
    assert list((tmp_path / "example-data").iterdir()) == []


def test_unknown_data_and_another_machine_are_refused(tmp_path: pathlib.Path) -> None:
    """What containers would not find is told before the package is compiled."""
    with pytest.raises(
        ConfigurationError, match=r"example:letters is not allowed; there are example:digits, example:detection"
    ):
        example_data("example:letters", tmp_path)
    with pytest.raises(ConfigurationError, match=r"example:digits is written by lockstep run on this machine"):
        load_package_config("digits", overrides=["kubeflow.image=i", "kubeflow.pipeline_root=minio://b/r"])


def test_the_example_reads_what_is_written(tmp_path: pathlib.Path) -> None:
    """Below the run's own root."""
    source, root = load_config("digits", root=tmp_path / "root")
    assert source.config.data.path == str(root / "example-data" / "digits")


def test_a_png_holds_the_pixels() -> None:
    """A single row too."""
    image = np.asarray(Image.open(io.BytesIO(png([bytes([0, 128, 255])]))))
    assert image.tolist() == [[0, 128, 255]]


def test_boxes_of_drawn_shapes_are_around_their_pixels(tmp_path: pathlib.Path) -> None:
    """The list names each image once, with a class for each box; what is within a box differs from the background."""
    folder = pathlib.Path(example_data("example:detection", tmp_path))
    rows = list(csv.DictReader((folder / "boxes.csv").open(encoding="utf-8")))
    assert [row["path"] for row in rows] == sorted(path.name for path in folder.glob("*.png"))
    assert {name for row in rows for name in row["classes"].split()} == {"disc", "square", "triangle"}
    assert {len(row["classes"].split()) for row in rows} == {0, 1, 2, 3}
    for row in rows[:50]:
        image = np.asarray(Image.open(folder / row["path"])).astype(float)
        boxes = np.array(row["boxes"].split(), int).reshape(-1, 4)
        assert len(boxes) == len(row["classes"].split())
        for x_min, y_min, x_max, y_max in boxes:
            middle = image[(y_min + y_max) // 2, (x_min + x_max) // 2]
            background = np.median(image.reshape(-1, 3), axis=0)
            assert np.abs(middle - background).max() > 20


def test_drawing_is_the_same_everywhere() -> None:
    """By NumPy's frozen generator."""
    pixels, boxes, classes = draw_shapes(np.random.RandomState(0))
    again = draw_shapes(np.random.RandomState(0))
    np.testing.assert_array_equal(again[0], pixels)
    assert (again[1], again[2]) == (boxes, classes)
    assert pixels.shape == (60, 80, 3)
