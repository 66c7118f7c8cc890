"""What the cache sees of a user's code."""

import importlib.machinery
import importlib.util
import pathlib
import sys

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import load_config
from lockstep.pipelines.fingerprint import StepFingerprints, code_fingerprint, product_fingerprint


@pytest.fixture
def project(tmp_path: pathlib.Path) -> pathlib.Path:
    """A user's folder: a package whose module imports others in every way that Python has."""
    package = tmp_path / "my_project"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts" / "__init__.py").write_text("")
    (package / "model.py").write_text(
        "import json\nfrom . import layers\nfrom .parts.head import head\n"
        "def build_model(inputs):\n    import my_late\n    return layers, head, json, my_late\n"
        "other_model = build_model\n"
    )
    (package / "layers.py").write_text("WIDTH = 1\n")
    (package / "parts" / "head.py").write_text("from ..sizes import SIZE\nhead = SIZE\n")
    (package / "sizes.py").write_text("SIZE = 1\n")
    (package / "unused.py").write_text("")
    (tmp_path / "my_late.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "file",
    [
        "my_project/model.py",
        "my_project/__init__.py",
        "my_project/layers.py",
        "my_project/parts/head.py",
        "my_project/parts/__init__.py",
        "my_project/sizes.py",
        "my_late.py",
    ],
)
def test_an_edit_anywhere_in_the_imports_changes_the_fingerprint(project: pathlib.Path, file: str) -> None:
    """The module, its packages, and local imports however deep and however spelled."""
    before = code_fingerprint("my_project.model:build_model", project)
    (project / file).write_text((project / file).read_text() + "# edited\n")
    assert code_fingerprint("my_project.model:build_model", project) != before


def test_what_the_module_does_not_import_does_not_count(project: pathlib.Path) -> None:
    """An edited neighbour leaves the cache as it is; so does a touched file."""
    before = code_fingerprint("my_project.model:build_model", project)
    (project / "my_project" / "unused.py").write_text("# edited\n")
    (project / "my_project" / "model.py").touch()
    assert code_fingerprint("my_project.model:build_model", project) == before


def test_another_function_of_the_same_module_is_another_fingerprint(project: pathlib.Path) -> None:
    """The name of the function is part of it."""
    one, other = (code_fingerprint(f"my_project.model:{name}", project) for name in ("build_model", "other_model"))
    assert one != other


def test_imports_in_a_circle_end(project: pathlib.Path) -> None:
    """Two modules that import each other are read once each."""
    (project / "one.py").write_text("import two\nf = two\n")
    (project / "two.py").write_text("import one\n")
    assert code_fingerprint("one:f", project)


def test_nothing_is_run_to_find_out(project: pathlib.Path) -> None:
    """Fingerprints read source; they import nothing."""
    (project / "explosive.py").write_text("raise SystemExit('imported')\nf = 1\n")
    assert code_fingerprint("explosive:f", project)


def test_a_module_that_is_not_there_is_named(project: pathlib.Path) -> None:
    """The error says the import path and where was looked."""
    with pytest.raises(ConfigurationError, match=r"my_project\.modle:f: no module 'my_project\.modle'.*my_project|in "):
        code_fingerprint("my_project.modle:f", project)


def test_a_function_that_is_not_there_is_named_with_the_nearest(project: pathlib.Path) -> None:
    """A typing error is told before anything runs; what a star import may bring is given the benefit of the doubt."""
    with pytest.raises(ConfigurationError, match=r"model\.py defines no 'build_mdl'; did you mean 'build_model'\?"):
        code_fingerprint("my_project.model:build_mdl", project)
    (project / "star.py").write_text("from my_project.model import *\n")
    assert code_fingerprint("star:anything", project)


def test_an_editable_installation_with_a_finder_of_its_own_is_found(
    project: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Modern editable installations bring no folder on the path, but a finder."""
    module = project / "elsewhere" / "my_installed.py"
    module.parent.mkdir()
    module.write_text("f = 1\n")

    class Finder:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> importlib.machinery.ModuleSpec | None:
            return importlib.util.spec_from_file_location(name, module) if name == "my_installed" else None

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    before = code_fingerprint("my_installed:f", project)
    module.write_text("f = 2\n")
    assert code_fingerprint("my_installed:f", project) != before


def test_invalid_python_names_file_and_line(project: pathlib.Path) -> None:
    """A syntax error is told before anything runs."""
    (project / "broken.py").write_text("x = 1\ndef f(:\n")
    with pytest.raises(ConfigurationError, match=r"broken\.py:2: not valid Python"):
        code_fingerprint("broken:f", project)


def test_the_users_folder_comes_last(project: pathlib.Path) -> None:
    """A module of the user's named like an installed one does not stand in for it, as when the code is run."""
    (project / "yaml.py").write_text("raise SystemExit('imported')\n")
    (project / "my_late.py").write_text("f = 1\n")
    before = code_fingerprint("my_late:f", project)
    (project / "my_late.py").write_text("import yaml\nf = 1\n")
    changed = code_fingerprint("my_late:f", project)
    (project / "yaml.py").write_text("# edited\n")
    assert before != changed == code_fingerprint("my_late:f", project)


def test_the_product_has_one_fingerprint() -> None:
    """A hexadecimal SHA-256, the same each time."""
    assert len(product_fingerprint()) == 64
    assert product_fingerprint() == product_fingerprint()


def test_a_function_for_the_stock_trainer_is_part_of_the_trainers_fingerprint(project: pathlib.Path) -> None:
    """Editing its module changes the trainer's fingerprint and no other step's."""
    overrides = ["run_fn=my_project.model:build_model", "model={}"]
    source, _ = load_config("taxi", overrides=overrides, root=project / "root")
    fingerprints = StepFingerprints(source.config, project)
    before = {step: fingerprints.of(step) for step in ("Transform", "DistributedTrainer")}
    (project / "my_project" / "layers.py").write_text("WIDTH = 2\n")
    after = {step: fingerprints.of(step) for step in before}
    assert [step for step in before if after[step] != before[step]] == ["DistributedTrainer"]
