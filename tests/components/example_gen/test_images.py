"""Images as input: folders of classes, and lists."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from PIL import Image

from lockstep.components.errors import DataError
from lockstep.components.example_gen import image_source
from lockstep.components.example_gen.options import DataOptions, ImageOptions, Requirements
from tests.components.example_gen.conftest import Ingested

Ingest = Callable[..., Ingested]

_PNG = b"\x89PNG\r\n\x1a\n"
_JPEG = b"\xff\xd8\xff\xe0"


def _image(path: Path, content: bytes = _JPEG + b"data") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_folder_of_classes_becomes_bytes_labels_and_names(tmp_path: Path, ingest_path: Ingest) -> None:
    """Names in any script, the same name in two classes, folders within folders; hidden files are left out."""
    _image(tmp_path / "in" / "cat" / "1.jpg", _JPEG + b"a")
    _image(tmp_path / "in" / "dog" / "1.jpg", _PNG + b"b")
    _image(tmp_path / "in" / "b\u00e4r" / "\u65e5\u672c" / "x y.JPG", b"GIF89a")
    _image(tmp_path / "in" / "cat" / ".hidden.jpg", b"")
    _image(tmp_path / "in" / "__MACOSX" / "1.jpg", b"")
    rows = sorted(ingest_path(tmp_path / "in").rows(), key=lambda row: row["path"])
    assert rows == [
        {"image": [b"GIF89a"], "label": ["\u65e5\u672c".encode()], "path": ["b\u00e4r/\u65e5\u672c/x y.JPG".encode()]},
        {"image": [_JPEG + b"a"], "label": [b"cat"], "path": [b"cat/1.jpg"]},
        {"image": [_PNG + b"b"], "label": [b"dog"], "path": [b"dog/1.jpg"]},
    ]


def test_columns_have_the_names_that_are_given(tmp_path: Path, ingest_path: Ingest) -> None:
    """Label and path may be left out; folders that are numbers may be ints."""
    _image(tmp_path / "in" / "7" / "1.jpg")
    images = ImageOptions(column="photo", label="digit", path="")
    assert ingest_path(tmp_path / "in", images=images, types={"digit": "int"}).rows() == [
        {"photo": [_JPEG + b"data"], "digit": [7]}
    ]
    images = ImageOptions(label="", path="file")
    rows = ingest_path(tmp_path / "in" / "7", images=images).rows()
    assert rows == [{"image": [_JPEG + b"data"], "file": [b"1.jpg"]}]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b"hello world", "is no image (its first bytes are b'hello wo')"),
        (b"RIFF\0\0\0\0WEBPVP8 ", "is a WebP image; give JPEG, PNG, GIF or BMP"),
        (b"II*\0", "is a TIFF file"),
    ],
)
def test_a_file_that_is_no_image_is_named_or_left_out(
    tmp_path: Path, ingest_path: Ingest, content: bytes, problem: str
) -> None:
    """By its first bytes, whatever its name says."""
    _image(tmp_path / "in" / "cat" / "1.jpg")
    bad = _image(tmp_path / "in" / "cat" / "2.jpg", content)
    with pytest.raises(DataError) as failure:
        ingest_path(tmp_path / "in")
    assert str(failure.value).startswith(f"{bad}: {problem}")
    assert ingest_path(tmp_path / "in", on_error="quarantine").column("path") == [b"cat/1.jpg"]


def test_a_file_in_no_class_folder_is_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """Where there shall be labels."""
    _image(tmp_path / "in" / "1.jpg")
    with pytest.raises(DataError, match=r"1\.jpg: lies in no class folder"):
        ingest_path(tmp_path / "in")


def test_links_are_followed_and_broken_ones_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """A link to a folder that it is in ends nowhere, and is passed over."""
    _image(tmp_path / "photos" / "1.jpg")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "cat").symlink_to(tmp_path / "photos")
    (tmp_path / "photos" / "again").symlink_to(tmp_path / "photos")
    assert ingest_path(tmp_path / "in").column("path") == [b"cat/1.jpg"]
    (tmp_path / "photos" / "2.jpg").symlink_to(tmp_path / "gone.jpg")
    with pytest.raises(DataError, match=r"2\.jpg: a link that leads to nothing"):
        ingest_path(tmp_path / "in")


def test_a_name_that_is_not_utf_8_is_kept(tmp_path: Path, ingest_path: Ingest) -> None:
    """Byte for byte."""
    _image(tmp_path / "in" / "cat" / "1.jpg")
    (tmp_path / "in" / "cat" / "1.jpg").rename(tmp_path / "in" / "cat" / os.fsdecode(b"\xff.jpg"))
    assert ingest_path(tmp_path / "in", format="images").column("path") == [b"cat/\xff.jpg"]


def test_the_same_image_is_in_one_split(tmp_path: Path, ingest_path: Ingest) -> None:
    """Whatever it is called, so that no image is both learned and tested."""
    for number in range(40):
        _image(tmp_path / "in" / "a" / f"{number}.jpg", _JPEG + b"%d" % number)
        _image(tmp_path / "in" / "b" / f"copy-{number}.jpg", _JPEG + b"%d" % number)
    result = ingest_path(tmp_path / "in", splits={"train": 1, "eval": 1})
    train, evaluated = ({row["image"][0] for row in result.rows(split)} for split in ("train", "eval"))
    assert not train & evaluated
    assert result.manifest.rows["train"] == 2 * len(train)


def test_many_images_come_in_small_batches(
    tmp_path: Path, ingest_path: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None is lost between two."""
    monkeypatch.setattr(image_source, "_UNIT_FILES", 7)
    monkeypatch.setattr(image_source, "_BATCH_BYTES", 20)
    for number in range(30):
        _image(tmp_path / "in" / str(number % 3) / f"{number}.jpg", _JPEG + b"%d" % number)
    assert len(ingest_path(tmp_path / "in").rows()) == 30


def test_mixed_formats_in_a_folder_are_refused(tmp_path: Path, ingest_path: Ingest) -> None:
    """One file of each is named."""
    _image(tmp_path / "in" / "cat" / "1.jpg")
    (tmp_path / "in" / "cat" / "rows.csv").write_text("a\n1\n")
    with pytest.raises(DataError, match=r"1\.jpg and .*rows\.csv differ in format; give data\.format"):
        ingest_path(tmp_path / "in")


def _drawn(kind: str = "PNG", mode: str = "RGB", size: tuple[int, int] = (40, 30)) -> bytes:
    """An image with some detail, written by Pillow."""
    file = io.BytesIO()
    image = Image.effect_mandelbrot(size, (-2, -1.5, 1, 1.5), 90).convert(mode)
    image.save(file, kind)
    return file.getvalue()


def _with_another_byte(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


_DECODED = Requirements(images={"image": 3})


@pytest.mark.parametrize(
    "broken",
    [
        _drawn("JPEG")[:-40],
        _drawn("JPEG")[:100],
        _drawn("JPEG")[:-2],
        _drawn()[:-12],
        _with_another_byte(_drawn()),
        _drawn("GIF")[:-30],
        _drawn("BMP")[:-1],
        _PNG + b"\0" * 100,
        _JPEG,
    ],
    ids=["cut jpeg", "head of jpeg", "jpeg without end", "png without end", "png with a wrong sum", "cut gif",
         "cut bmp", "zeros", "first bytes"],
)  # fmt: skip
def test_a_broken_image_is_named_or_left_out(tmp_path: Path, ingest_path: Ingest, broken: bytes) -> None:
    """What Transform would stop at, which a later step could not name."""
    with pytest.raises(tf.errors.OpError):
        tf.io.decode_image(broken, channels=3)
    _image(tmp_path / "in" / "cat" / "1.jpg", _drawn("JPEG"))
    bad = _image(tmp_path / "in" / "cat" / "2.jpg", broken)
    with pytest.raises(DataError) as failure:
        ingest_path(tmp_path / "in", _DECODED)
    message = str(failure.value)
    assert message.startswith(f"{bad}: column 'image': an image that TensorFlow cannot decode (")
    assert "\n" not in message
    assert "node" not in message
    assert message.endswith("data.on_error: quarantine")
    result = ingest_path(tmp_path / "in", _DECODED, on_error="quarantine")
    assert result.column("path") == [b"cat/1.jpg"]
    (line,) = (result.folder / "quarantine" / "rows.jsonl").read_text().splitlines()
    document = json.loads(line)
    assert document["path"] == document["place"] == str(bad)
    assert json.loads(document["row"]) == {"label": "cat", "path": "cat/2.jpg"}


def test_what_can_be_decoded_is_kept(tmp_path: Path, ingest_path: Ingest) -> None:
    """Every format and mode, and a JPEG whose fault its decoder passes over, as it will again."""
    contents = [_drawn(kind, mode) for kind in ("PNG", "JPEG", "GIF", "BMP") for mode in ("RGB", "L")]
    contents += [_drawn("PNG", "P"), _drawn("PNG", "RGBA"), _with_another_byte(_drawn("JPEG", size=(400, 300)))]
    for number, content in enumerate(contents):
        tf.io.decode_image(content, channels=3)
        _image(tmp_path / "in" / "cat" / f"{number}.png", content)
    assert len(ingest_path(tmp_path / "in", _DECODED).rows()) == len(contents)


def test_channels_that_a_format_does_not_give_are_named(tmp_path: Path, ingest_path: Ingest) -> None:
    """As Transform will ask for them."""
    _image(tmp_path / "in" / "cat" / "1.gif", _drawn("GIF"))
    with pytest.raises(DataError, match=r"1\.gif: column 'image': .*\(channels must be 0 or 3 for GIF, got 1\)"):
        ingest_path(tmp_path / "in", Requirements(images={"image": 1}))


def test_images_of_any_format_are_decoded(tmp_path: Path, ingest_path: Ingest) -> None:
    """A row of a Parquet file is named by its number; one without an image is left to the feature's `missing`."""
    rows = pa.table({"photo": pa.array([_drawn(), None, _drawn()[:-20], b""], pa.binary()), "y": [1, 2, 3, 4]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    requirements = Requirements(images={"photo": 3})
    with pytest.raises(DataError, match=r"rows\.parquet.*3: column 'photo': an image that TensorFlow cannot decode"):
        ingest_path(tmp_path / "rows.parquet", requirements)
    assert ingest_path(tmp_path / "rows.parquet", requirements, on_error="quarantine").column("y") == [1, 2, 4]
    with pytest.raises(DataError, match="no column 'picture'"):
        ingest_path(tmp_path / "rows.parquet", Requirements(images={"picture": 3}))


def test_a_broken_image_of_a_list_is_named_by_the_list(tmp_path: Path, ingest_path: Ingest) -> None:
    """Line and path."""
    _image(tmp_path / "in" / "a.jpg", _drawn("JPEG"))
    _image(tmp_path / "in" / "b.jpg", _drawn("JPEG")[:-30])
    (tmp_path / "in" / "labels.csv").write_text("file,y\na.jpg,1\nb.jpg,2\n")
    options = {"format": "image_list", "images": _LIST}
    with pytest.raises(DataError, match=r"labels\.csv:3: column 'image': an image that TensorFlow cannot decode"):
        ingest_path(tmp_path / "in" / "**", _DECODED, **options)
    result = ingest_path(tmp_path / "in" / "**", _DECODED, on_error="quarantine", **options)
    assert result.column("y") == [1]
    document = json.loads((result.folder / "quarantine" / "rows.jsonl").read_text())
    assert json.loads(document["row"]) == {"file": "b.jpg", "y": 2}


_LIST = ImageOptions(path="file")


def test_a_list_gives_images_with_any_columns(tmp_path: Path, ingest_path: Ingest) -> None:
    """Paths are relative to the list's folder."""
    for name in ("a", "b"):
        _image(tmp_path / "in" / "photos" / f"{name}.jpg", _JPEG + name.encode())
    (tmp_path / "in" / "labels.csv").write_text("file,width,tag\nphotos/a.jpg,7,x\nphotos/b.jpg,,y\n")
    result = ingest_path(tmp_path / "in" / "**", format="image_list", images=_LIST)
    assert sorted(result.rows(), key=lambda row: row["file"]) == [
        {"image": [_JPEG + b"a"], "file": [b"photos/a.jpg"], "width": [7], "tag": [b"x"]},
        {"image": [_JPEG + b"b"], "file": [b"photos/b.jpg"], "tag": [b"y"]},
    ]
    assert result.manifest.types == {"image": "string", "file": "string", "width": "int", "tag": "string"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("file,y\na.jpg,1\ngone.jpg,2\n", r"labels\.csv:3: .*gone\.jpg: is not among the files of data\.path"),
        ("file,y\na.jpg,1\nempty.jpg,2\n", r"labels\.csv:3: .*empty\.jpg: is empty"),
        ("file,y\na.jpg,1\n,2\n", r"labels\.csv:3: column 'file' has no value"),
        ("file,y\na.jpg,1\na.jpg\n", r"labels\.csv:3: 1 cells, but the header has 2 columns"),
    ],
)
def test_a_row_without_image_is_named_or_left_out(tmp_path: Path, ingest_path: Ingest, text: str, problem: str) -> None:
    """With the line of the list."""
    _image(tmp_path / "in" / "a.jpg")
    _image(tmp_path / "in" / "empty.jpg", b"")
    (tmp_path / "in" / "labels.csv").write_text(text)
    options = {"format": "image_list", "images": _LIST}
    with pytest.raises(DataError, match=problem):
        ingest_path(tmp_path / "in", **options)
    assert ingest_path(tmp_path / "in", on_error="quarantine", **options).column("y") == [1]


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"l.csv": "path\nx.jpg\n"}, r"data\.images\.path: .*l\.csv has no column 'file'"),
        ({"l.csv": "file,image\nx.jpg,1\n"}, "has a column 'image', which is that of the images"),
        ({"l.csv": "file\n", "m.csv": "file\n"}, "takes one CSV file and its images .*l.csv, .*m.csv"),
        ({}, "takes one CSV file .* got none"),
    ],
)
def test_a_list_that_cannot_be_used_is_refused(
    tmp_path: Path, ingest_path: Ingest, files: dict[str, str], problem: str
) -> None:
    """Before anything is read."""
    _image(tmp_path / "in" / "x.jpg")
    for name, text in files.items():
        (tmp_path / "in" / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        ingest_path(tmp_path / "in", Requirements(), format="image_list", images=_LIST)


def test_options_of_images_are_checked() -> None:
    """Names must differ."""
    with pytest.raises(ValueError, match="give three different names"):
        DataOptions(path="x", images=ImageOptions(column="path"))
    with pytest.raises(ValueError, match="column: '' is not allowed"):
        ImageOptions(column="")
