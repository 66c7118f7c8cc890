"""What a failed step tells the user."""

import errno
import pathlib

import pytest
import tensorflow as tf

from lockstep.components.errors import DataError, StepFailed
from lockstep.pipelines.explanation import explain
from lockstep.transforms.features import Feature
from lockstep.transforms.images import decode_images


def raised(error: Exception, cause: Exception | None = None) -> Exception:
    """Returns an error that was really raised, from a cause."""
    try:
        raise error from cause
    except Exception as e:  # noqa: BLE001 - any error, handed back to the test
        return e


@pytest.mark.parametrize(
    ("error", "exit_code", "message"),
    [
        (raised(DataError("rows.csv:3: no")), 2, "Step: rows.csv:3: no"),
        (raised(RuntimeError("Beam's words"), DataError("rows.csv:3: no")), 2, "Step: rows.csv:3: no"),
        (raised(StepFailed("port 5000 is in use")), 1, "Step: port 5000 is in use"),
        (
            raised(
                RuntimeError(
                    "Pipeline failed: java.lang.RuntimeException: Error received from SDK harness: Traceback:\n"
                    "lockstep.components.errors.DataError: /x.gz: cut [while running 'Read']\n\tat org.apache.beam.Fn"
                )
            ),
            2,
            "Step: /x.gz: cut",
        ),
        (raised(ValueError("features.x: needs numbers [while running 'Map']")), 2, "Step: features.x: needs numbers"),
        (
            raised(RuntimeError("assertion failed: [label.y: must be 0 or 1] [2.0] [[node x]] [while running 'M']")),
            2,
            "Step: label.y: must be 0 or 1",
        ),
        (raised(ZeroDivisionError("division by zero")), 1, "Step: ZeroDivisionError: division by zero"),
    ],
)
def test_the_cause_is_told_and_not_its_wrapping(
    error: BaseException, exit_code: int, message: str, tmp_path: pathlib.Path
) -> None:
    """What the user can mend exits with 2, the rest with 1; the step is named."""
    finished = explain(error, step="Step", root=tmp_path)
    assert (finished.exit_code, finished.message) == (exit_code, message)


@pytest.mark.parametrize(
    "error",
    [
        raised(OSError(errno.ENOSPC, "No space left on device")),
        raised(RuntimeError("wrapped"), OSError(errno.ENOSPC, "No space left on device")),
        raised(RuntimeError("/x/y: write failed; No space left on device [Op:SaveV2]")),
        raised(RuntimeError("mysql error: database or disk is full")),
    ],
)
def test_a_full_disk_is_told_as_such(error: BaseException, tmp_path: pathlib.Path) -> None:
    """However TensorFlow, SQLite or Python put it; with the room there is and what to do."""
    finished = explain(error, step="Step", root=tmp_path)
    assert finished.exit_code == 1
    assert finished.message.startswith("Step: the disk is full: ")
    assert "give another --root" in finished.message


def test_a_cause_in_a_circle_ends(tmp_path: pathlib.Path) -> None:
    """Two errors that name each other as cause are looked at once."""
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert explain(first, step="", root=tmp_path).message == "ValueError: first"


def test_what_makes_room_is_said_in_the_terms_of_the_place(tmp_path: pathlib.Path) -> None:
    """A container has no --root."""
    finished = explain(
        OSError(errno.ENOSPC, "No space left on device"), step="Step", root=tmp_path, make_room="give it a volume"
    )
    assert finished.message.endswith(f"free under {tmp_path}; give it a volume")


def test_an_image_that_transform_cannot_decode_is_told_by_its_column(tmp_path: pathlib.Path) -> None:
    """In TensorFlow's words, without its graph."""
    decode = tf.function(lambda content: decode_images(content, Feature(kind="image", height=2, width=2), "my photo"))
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        decode(tf.constant([b"no image"]))
    wrapped = raised(RuntimeError(f"An error occurred: {caught.value}"), caught.value)
    message = explain(wrapped, step="Transform", root=tmp_path).message
    begin = (
        "Transform: features.my_photo: an image of this column cannot be decoded: Unknown image file format. One of "
    )
    end = " required; ExampleGen names the file with data.images.verify: true"
    assert message.startswith(begin)
    assert message.endswith(end)
    formats = message.removeprefix(begin).removesuffix(end).split(", ")  # newer releases take more
    assert {"JPEG", "PNG", "GIF", "BMP"} <= set(formats) <= {"JPEG", "JPEG XL", "PNG", "GIF", "BMP", "WebP"}
