"""Images that Transform passes on as bytes, and the trainer decodes: the same as if Transform had decoded them."""

import functools
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tensorflow_transform.tf_metadata import dataset_metadata, metadata_io, schema_utils

from lockstep.components.errors import ConfigurationError
from lockstep.components.trainer import loop, models
from lockstep.components.trainer.decoder_options import DecoderOptions
from lockstep.components.trainer.decoding import decoded_spec, load_decoder
from lockstep.components.trainer.evaluation import evaluate
from lockstep.components.trainer.export import export, serving_columns
from lockstep.components.trainer.input_pipeline import TrainingInput
from lockstep.components.trainer.records import Records
from lockstep.components.trainer.spec import ModelOptions
from lockstep.transforms import testing
from lockstep.transforms.augmentation import ImageAugmentation
from lockstep.transforms.features import Feature, Label, to_config
from lockstep.transforms.images import ImageDecoder, decode_images
from lockstep.transforms.preprocessing import preprocessing_fn
from tests.components.trainer.conftest import write_split

SIZE = {"height": 8, "width": 6, "scale": "minus_one_one", "missing": "zero"}
ENCODED = Feature(kind="image", decode="train", **SIZE)  # type: ignore[arg-type]
DECODED = Feature(kind="image", **SIZE)  # type: ignore[arg-type]
DECODER = DecoderOptions(
    build="lockstep.transforms.images:ImageDecoder", parameters={"features": {"photo": ENCODED.to_json()}}
)
SPEC = {"photo": tf.io.FixedLenFeature([1], tf.string), "y": tf.io.FixedLenFeature([1], tf.float32)}
PIXELS = {**SPEC, "photo": tf.io.FixedLenFeature([8, 6, 3], tf.float32)}


def photo(number: int) -> bytes:
    """A JPEG of its own size and noise; every seventh is missing."""
    if number % 7 == 6:
        return b""
    file = io.BytesIO()
    noise = np.random.default_rng(number).integers(0, 255, (9 + number % 5, 12, 3), np.uint8)
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


PHOTOS = [photo(number) for number in range(37)]


def record(image: Any, y: float) -> bytes:
    """A serialised record, with an image as bytes or pixels."""
    kind = tf.train.Feature(bytes_list=tf.train.BytesList(value=[image])) if isinstance(image, bytes) else None
    pixels = kind or tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(image)))
    label = tf.train.Feature(float_list=tf.train.FloatList(value=[y]))
    return tf.train.Example(features=tf.train.Features(feature={"photo": pixels, "y": label})).SerializeToString()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Records]:
    """The same images as bytes and as pixels, in records."""
    folder = tmp_path_factory.mktemp("records")
    pixels = decode_images(tf.constant(PHOTOS), DECODED).numpy()
    encoded = [record(image, number % 2) for number, image in enumerate(PHOTOS)]
    decoded = [record(image, number % 2) for number, image in enumerate(pixels)]
    return {
        "encoded": Records(write_split(folder / "e", encoded, 4), SPEC, "y", decoder=load_decoder(DECODER)),
        "decoded": Records(write_split(folder / "d", decoded, 4), PIXELS, "y"),
    }


@pytest.mark.parametrize("cache", ["memory", "disk", "none"])
@pytest.mark.parametrize("augment", [False, True])
def test_batches_are_those_of_records_decoded_before(
    both: dict[str, Records], tmp_path: Path, cache: str, augment: bool
) -> None:
    """Bit for bit, in every epoch, of each of two workers, padding too; decoded before they are changed at random."""
    change = ImageAugmentation(image="photo", rotate=20, brightness=0.2, value_range=(-1, 1)) if augment else None
    for worker in range(2):
        encoded, decoded = (
            TrainingInput(
                records, batch_size=8, num_shards=4, worker=worker, num_workers=2, augmentation=change,
                cache=cache, cache_dir=tmp_path / name,  # type: ignore[arg-type]
            )
            for name, records in both.items()
        )  # fmt: skip
        steps = 2 * decoded.steps_per_epoch
        for one, other in zip(encoded.batches().take(steps), decoded.batches().take(steps), strict=True):
            tf.nest.map_structure(lambda a, b: np.testing.assert_array_equal(a.numpy(), b.numpy()), one, other)
            assert one[0]["photo"].shape == (4, 8, 6, 3)
        np.testing.assert_array_equal(encoded.sample()[0]["photo"], decoded.sample()[0]["photo"])


def test_what_is_kept_in_memory_is_measured_by_the_files(tmp_path: Path) -> None:
    """Encoded images are about as large as their files; decoded ones have all their pixels."""
    images = [tf.io.encode_png(np.random.default_rng(i).integers(0, 255, (40, 40, 3), np.uint8)) for i in range(9)]
    contents = [image.numpy() for image in images]
    split = write_split(tmp_path / "split", [record(content, 1) for content in contents], 2)
    records = Records(split, SPEC, "y", decoder=load_decoder(DECODER))
    mean = sum(map(len, contents)) / len(contents)
    assert 0.9 * mean < records.bytes_per_record < 1.2 * mean
    assert records.bytes_per_decoded_record == (8 * 6 * 3 + 1) * 4


def test_a_model_is_evaluated_and_served_on_bytes(both: dict[str, Records], tmp_path: Path) -> None:
    """With the predictions that it has for what Transform would have decoded."""
    features = {"photo": ENCODED}
    label = Label(column="y")
    rows: list[testing.Row] = [{"photo": image or None, "y": float(i % 2)} for i, image in enumerate(PHOTOS)]
    graph_dir = tmp_path / "graph"
    preprocessing = functools.partial(preprocessing_fn, custom_config=to_config(features, label))
    made = testing.run_preprocessing(preprocessing, rows, output_dir=graph_dir)
    schema = schema_utils.schema_from_feature_spec(made.raw_spec)
    metadata_io.write_metadata(dataset_metadata.DatasetMetadata(schema), str(graph_dir / "metadata"))
    assert made.features["photo"][:, 0].tolist() == PHOTOS
    decoder = load_decoder(DECODER)
    spec = made.transform_output.transformed_feature_spec()
    assert decoded_spec(spec, decoder)["photo"].shape == (8, 6, 3)
    options = ModelOptions(build="conv", parameters={"filters": [4], "hidden": []})
    model = models.build_model(options, made.transform_output, "y", decoder=decoder)
    loss = loop.per_example_loss(model, "binary")
    values = [evaluate(model, records, loss, "binary", on_batch=lambda: None) for records in both.values()]
    assert values[0] == values[1]
    columns = serving_columns(made.transform_output, model, label="y")
    export(
        model, made.transform_output, columns, tmp_path / "model", label="y", label_kind="binary", decoder=decoder
    )  # fmt: skip
    serve = tf.saved_model.load(str(tmp_path / "model")).signatures["serving_default"]
    examples = [
        tf.train.Example(
            features=tf.train.Features(
                feature={"photo": tf.train.Feature(bytes_list=tf.train.BytesList(value=[image] if image else []))}
            )
        ).SerializeToString()
        for image in PHOTOS
    ]
    served = serve(tf.constant(examples))["predictions"]
    expected = model({"photo": decode_images(tf.constant(PHOTOS), DECODED)})
    np.testing.assert_allclose(served, expected, rtol=1e-5)


def test_images_that_are_not_there_are_not_looked_for() -> None:
    """A function of the user's may have left them out."""
    columns = {"y": tf.constant([[1.0]])}
    assert ImageDecoder(features={"photo": ENCODED.to_json()})(columns) == columns


def test_a_decoder_that_cannot_be_made_is_named() -> None:
    """By its import path."""
    with pytest.raises(ConfigurationError, match=r"decoder: 'lockstep.transforms.images:ImageDecoder' refuses"):
        load_decoder(DecoderOptions(build=DECODER.build, parameters={"pictures": {}}))
