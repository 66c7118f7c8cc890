"""``lockstep models`` on a folder that pushes filled."""

import json
from pathlib import Path

import pytest

from lockstep.components.pusher import publish, versions
from lockstep.pipelines import cli
from tests.components.pusher.test_versions import make_model


@pytest.fixture
def pushed(tmp_path: Path) -> Path:
    """A push folder with the versions of two models."""
    for name, auc in {"a": 0.91, "b": 0.9349}.items():
        origin = publish.Origin(source_uri=f"/runs/{name}", metrics={"auc": auc}, token=name)
        publish.push(make_model(tmp_path / name, name), tmp_path / "pushed", 5, origin)
    return tmp_path / "pushed"


def test_the_list_tells_versions_metrics_and_which_is_served(pushed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line a version, oldest first; the start of a push that was killed counts for nothing, and is told."""
    first, second = versions.version_numbers(pushed)
    (pushed / "5" / "variables").mkdir(parents=True)
    assert cli.main(["models", "list", str(pushed)]) == 0
    folder, head, begun, old, new = capsys.readouterr().out.splitlines()
    assert folder == str(pushed)
    assert head.split() == ["VERSION", "PUSHED", "(UTC)", "SIZE", "METRICS"]
    assert begun.split(maxsplit=1) == ["5", "not whole: never served"]
    assert old.split()[0] == str(first)
    assert old.endswith("auc 0.91")
    assert new.split()[:2] == ["*", str(second)]
    assert new.endswith("auc 0.9349")


def test_json_holds_what_the_manifests_say(pushed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For programs: state, size in bytes, lineage."""
    assert cli.main(["models", "list", str(pushed), "--json"]) == 0
    old, new = json.loads(capsys.readouterr().out)
    assert (old["state"], new["state"]) == ("kept", "served")
    assert new["source_uri"] == "/runs/b"
    assert new["size"] == sum(path.stat().st_size for path in (pushed.parent / "b").rglob("*") if path.is_file())


def test_a_rollback_and_a_promotion_say_what_is_served(pushed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And the list shows both."""
    first, second = versions.version_numbers(pushed)
    assert cli.main(["models", "rollback", str(pushed)]) == 0
    third = versions.version_numbers(pushed)[-1]
    assert capsys.readouterr().out == (
        f"version {third} in {pushed} is served: the model of version {first}; version {second} is rolled back, and no"
        " run pushes that model again\n"
    )
    cli.main(["models", "list", str(pushed)])
    listed = capsys.readouterr().out.splitlines()
    assert listed[-2].endswith("auc 0.9349; rolled back")
    assert listed[-1].endswith(f"auc 0.91; model of {first}")
    assert cli.main(["models", "promote", str(pushed), str(second)]) == 0
    assert f"is served: the model of version {second}\n" in capsys.readouterr().out
    assert cli.main(["models", "promote", str(pushed), str(second)]) == 0
    assert "serves this model already" in capsys.readouterr().out
    assert cli.main(["models", "promote", str(pushed), "--to", str(pushed.parent / "production")]) == 0
    assert len(versions.list_versions(pushed.parent / "production")) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["list", "{}/nothing"], "no version is there; give a push folder, as push.dir names it"),
        (["rollback", "{}"], "no version is there"),
        (["promote", "{}/pushed", "7"], "no whole version 7; there are: "),
        (["promote", "{}/pushed"], "promote: name a version, or give --to DIR"),
    ],
)
def test_mistakes_are_told(
    arguments: list[str], message: str, pushed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With exit code 2, and nothing is made."""
    before = sorted(pushed.parent.rglob("*"))
    assert cli.main(["models", *(argument.format(pushed.parent) for argument in arguments)]) == 2
    assert message in capsys.readouterr().err
    assert sorted(pushed.parent.rglob("*")) == before
