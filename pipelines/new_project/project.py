"""Makes a project's folder, whole or not at all."""

import keyword
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from lockstep.components.errors import ConfigurationError, StepFailed
from lockstep.components.object_store import is_object_uri
from lockstep.components.package_files import is_package_path, resolve_package_path
from lockstep.pipelines.new_project import choices, files
from lockstep.pipelines.new_project.columns import read_table

__all__ = ["make_project", "project_name"]

_TRAIN_SHARE = 0.8


def make_project(folder: Path, data_path: str, label: str) -> list[str]:
    """Writes a pipeline, a model, unit tests and a README that fit the data.

    Args:
      folder: Made where absent; none of the files may be there.
      data_path: As ``data.path`` has it, relative to the working folder.
      label: The column to predict.

    Returns:
      What was picked, in lines for a person.

    Raises:
      DataError: The data cannot be read, or the label is none.
      ConfigurationError: A file is there already, or the folder's name gives no name for a pipeline.
      StepFailed: The files cannot be written.
    """
    name = project_name(folder)
    module = f"{re.sub(r'[^a-z0-9]+', '_', name.lower()).strip('_')}_model"
    if not module.isidentifier() or keyword.iskeyword(module):
        module = f"project_{module}"
    names = (files.PIPELINE_NAME, f"{module}.py", f"test_{module}.py", "example_rows.json", "README.md")
    for file in names:
        if (folder / file).exists():
            raise ConfigurationError(f"{folder / file}: is there already; give a folder without it")
    path = _as_data_path(data_path, folder)
    table = read_table(_absolute(data_path), label)
    choice = choices.choose_label(table.columns[label], table)
    features = choices.choose_features(table, label)
    texts = (
        files.pipeline_text(
            name,
            path=path,
            label=label,
            table=table,
            choice=choice,
            features=features,
            training=choices.choose_training(table, _TRAIN_SHARE),
            module=module,
        ),
        files.model_text(name, choice.options["kind"]),
        files.test_text(module),
        files.example_rows(table, label),
        files.readme_text(name, label, module),
    )
    _write(folder, dict(zip(names, texts, strict=True)))
    used = sum(chosen.feature is not None for chosen in features.values())
    return [
        f"{folder}: {', '.join(names)}",
        f"label {label}: {choice.options['kind']}, {choice.reason}",
        f"features: {used} of {len(features)} columns; {folder / files.PIPELINE_NAME} says why",
    ]


def project_name(folder: Path) -> str:
    """Returns the name of the pipeline in a folder: the folder's, as far as a pipeline may be called so.

    Raises:
      ConfigurationError: Nothing is left.
    """
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", folder.absolute().name).strip("-_.")[:63]
    if not name:
        raise ConfigurationError(f"{folder}: gives the pipeline no name; give a folder with letters in its name")
    return name


def _absolute(path: str) -> str:
    if is_object_uri(path):
        return path
    return resolve_package_path(path) if is_package_path(path) else str(Path(path).absolute())


def _as_data_path(path: str, folder: Path) -> str:
    """Returns the path relative to the pipeline's file."""
    if is_object_uri(path) or is_package_path(path):
        return path
    return os.path.relpath(Path(path).absolute(), folder.absolute())


def _write(folder: Path, texts: Mapping[str, str]) -> None:
    is_new = not folder.exists()
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as e:
        for path in written:
            path.unlink(missing_ok=True)
        if is_new:
            shutil.rmtree(folder, ignore_errors=True)
        raise StepFailed(f"{e.filename or folder}: {e.strerror}; nothing was written") from e
