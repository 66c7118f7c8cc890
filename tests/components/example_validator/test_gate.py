"""Which anomalies stop, and what is said of them: expectation, what was seen, rows by file and line."""

from pathlib import Path

import pandas as pd
import pytest
import tensorflow_data_validation as tfdv
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import anomalies_pb2, schema_pb2

from lockstep.components.example_gen.ingest import ingest
from lockstep.components.example_gen.options import DataOptions, Requirements
from lockstep.components.example_validator.gate import Finding, findings, message, stopping
from lockstep.components.example_validator.options import ValidateOptions, anomaly_kinds
from lockstep.components.example_validator.rows import example_rows

SCHEMA = text_format.Parse(
    """
    feature { name: "colour" type: BYTES domain: "colour" presence { min_fraction: 1 } }
    feature { name: "age" type: INT int_domain { min: 0 max: 120 } presence { min_fraction: 0.5 } }
    string_domain { name: "colour" value: "red" value: "blue" }
    """,
    schema_pb2.Schema(),
)
NEW_VALUES, TOO_LARGE = "enum_type_unexpected_string_values", "int_type_big_int"
ROWS = "colour,age,extra\nred,1,\nblue,200,\npurple,3,x\n,,\nred,150,\n"


@pytest.fixture
def anomalies() -> anomalies_pb2.Anomalies:
    """What TFX's validation itself says of such rows."""
    rows = pd.DataFrame({"colour": ["red", "blue", "purple", None, "red"], "age": [1.0, 200.0, 3.0, None, 150.0]})
    return tfdv.validate_statistics(tfdv.generate_statistics_from_dataframe(rows), SCHEMA)


@pytest.fixture
def artifact_dir(tmp_path: Path) -> str:
    """The rows as ExampleGen gives them, all in one split, with their origins."""
    (tmp_path / "rows.csv").write_text(ROWS)
    data = DataOptions(path="rows.csv", splits={"eval": 1}, num_shards=2, keep_origin=True)
    ingest([str(tmp_path / "rows.csv")], data, tmp_path / "examples", Requirements())
    return str(tmp_path / "examples")


def finding(column: str, kind: str) -> Finding:
    """Returns an anomaly of the split."""
    return Finding(split="eval", column=column, kind=kind, seen="Odd. Not as ever.")


def test_what_tfx_found_is_taken_over(anomalies: anomalies_pb2.Anomalies) -> None:
    """A kind, a column and TFX's own words for each reason."""
    found = {(each.column, each.kind): each.seen for each in findings({"eval": anomalies})}
    assert "purple" in found["colour", NEW_VALUES]
    assert ("colour", "feature_type_low_fraction_present") in found
    assert all(each.split == "eval" for each in findings({"eval": anomalies}))


def test_an_anomaly_stops_unless_its_kind_is_let_pass() -> None:
    """Kind by kind, or all of them."""
    both = [finding("colour", NEW_VALUES), finding("age", TOO_LARGE)]
    inferred, reviewed = (ValidateOptions().resolved(is_reviewed=each).allow or () for each in (False, True))
    assert stopping(both, inferred) == both[1:]
    assert stopping(both, reviewed) == both
    assert ValidateOptions(allow=("all",)).resolved(is_reviewed=True).allow == ("all",)
    assert stopping(both, ()) == both
    assert stopping(both, ("all",)) == []


def test_rows_are_named_by_file_and_line(artifact_dir: str) -> None:
    """Those whose value is not as the schema says, or not there."""
    wanted = [
        finding("colour", NEW_VALUES),
        finding("age", TOO_LARGE),
        finding("colour", "feature_type_low_fraction_present"),
        finding("extra", "schema_new_column"),
        finding("", "dataset_low_num_examples"),
    ]
    found = example_rows(artifact_dir, wanted, SCHEMA)
    lines = {
        key.column + key.kind: sorted(row.rpartition("rows.csv:")[2] for row in rows) for key, rows in found.items()
    }
    assert lines["colour" + NEW_VALUES] == ["4 ('purple')"]
    assert lines["age" + TOO_LARGE] == ["3 (200)", "6 (150)"]
    assert lines["colourfeature_type_low_fraction_present"] == ["5"]
    assert lines["extraschema_new_column"] == ["4 ('x')"]
    assert lines["dataset_low_num_examples"] == []


def test_the_message_says_what_was_seen_what_is_expected_where_and_what_to_do() -> None:
    """In a line each; the key can be copied."""
    odd = finding("age", TOO_LARGE)
    text = message([odd, finding("colour", NEW_VALUES)], SCHEMA, {odd: ("rows.csv:3 (200)",)})
    assert text.splitlines() == [
        "2 anomalies in the data",
        "  eval, column 'age': Odd. Not as ever.",
        "    expected: whole numbers, from 0 to 120, in 50.000% of the rows or more",
        "    rows: rows.csv:3 (200)",
        "  eval, column 'colour': Odd. Not as ever.",
        "    expected: text, of 2 values: red, blue, in every row",
        f"  mend the data, or let such anomalies pass: validate.allow: [{NEW_VALUES}, {TOO_LARGE}]",
    ]


def test_a_kind_that_there_is_not_is_refused_with_the_nearest() -> None:
    """All that TFX knows are allowed."""
    ValidateOptions(allow=tuple(anomaly_kinds()))
    with pytest.raises(ValueError, match=r"allow: 'schema_new_colum' is not allowed.*did you mean 'schema_new_column'"):
        ValidateOptions(allow=("schema_new_colum",))


def test_the_message_says_how_rows_are_named_where_they_were_not_looked_for() -> None:
    """Their origins cost room, so they are kept on request only."""
    lines = message([finding("age", TOO_LARGE)], SCHEMA, None).splitlines()
    assert lines[0] == "1 anomaly in the data"
    assert lines[3] == "  which rows: data.keep_origin: true names them"


def test_text_with_a_domain_of_numbers_is_shown_by_no_row(artifact_dir: str) -> None:
    """TFX infers such a domain for text that is written of digits; its bounds are not those of bytes."""
    schema = text_format.Parse(
        'feature { name: "extra" type: BYTES int_domain { min: 0 max: 9 } }', schema_pb2.Schema()
    )
    odd = finding("extra", "int_type_big_int")
    assert example_rows(artifact_dir, [odd], schema) == {odd: ()}
