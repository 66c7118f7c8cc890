"""URIs of an object store as paths of a container, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.pipelines.kubeflow.container_paths import ArtifactPaths, ContainerPaths

_NAMES = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="/\x00"), min_size=1, max_size=12)
_URIS = st.builds(
    lambda scheme, bucket, key, end: f"{scheme}://{'/'.join((bucket, *key))}{end}",
    st.sampled_from(["minio", "s3", "gs"]),
    _NAMES,
    st.lists(_NAMES, max_size=4),
    st.sampled_from(["", "/"]),
)
_ROOTS = st.sampled_from(["/", "/tmp/attempt-1", "/tmp/minio/x/"])


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("minio://mlpipeline/v2/artifacts/x", "/minio/mlpipeline/v2/artifacts/x"),
        ("s3://bucket/x", "/s3/bucket/x"),
        ("gs://bucket/x/", "/gcs/bucket/x/"),
        ("gs://bucket", "/gcs/bucket"),
        ("oci://registry/team/model:1", "/oci/registry_team_model:1/models"),
    ],
)
def test_paths_are_the_launcher_s(uri: str, path: str) -> None:
    """As `LocalPathForURI` of Kubeflow Pipelines' launcher."""
    assert ContainerPaths().local_path(uri) == path
    assert ContainerPaths("/tmp/step").local_path(uri) == f"/tmp/step{path}"


def test_an_artifact_of_the_workspace_is_on_its_volume() -> None:
    """As `LocalWorkspacePathForURI`."""
    path = ContainerPaths().local_path("gs://bucket/x", in_workspace=True)
    assert path == "/kfp-workspace/.artifacts/gcs/bucket/x"
    assert ContainerPaths().uri(path) == "gs://bucket/x"


@pytest.mark.parametrize("uri", ["", "/minio/b/x", "file:///x", "minio://", "minio:///", "http://host/x", "minio"])
def test_what_the_launcher_does_not_download_is_refused(uri: str) -> None:
    """Nothing would be there."""
    with pytest.raises(ValueError, match="give a URI of minio://, s3:// or gs:// with a bucket"):
        ContainerPaths().local_path(uri)


@given(_URIS, _ROOTS)
def test_a_uri_comes_back_as_it_was(uri: str, root: str) -> None:
    """Whatever its names are, slashes at its end included."""
    paths = ContainerPaths(root)
    assert paths.uri(paths.local_path(uri)) == uri


@given(_URIS, _ROOTS, st.booleans())
def test_nothing_local_is_left_of_an_artifact(uri: str, root: str, in_workspace: bool) -> None:
    """Neither in its URI nor in a text about it."""
    paths = ContainerPaths(root)
    local = paths.local_path(uri, in_workspace=in_workspace)
    mapping = ArtifactPaths(paths, [(uri, local)])
    assert mapping.restored_uri(local) == uri
    assert mapping.restored(f'{{"model": "{local}"}}').startswith(f'{{"model": "{uri.rstrip("/")}')


def test_local_paths_in_texts_become_uris() -> None:
    """In every text of a property, also several in one, and those of other artifacts."""
    mapping = ArtifactPaths(ContainerPaths(), [])
    text = 'evaluated /minio/b/model/Format-Serving on "/gcs/d/x", file:///s3/c/y'
    assert mapping.restored(text) == 'evaluated minio://b/model/Format-Serving on "gs://d/x", s3://c/y'
    assert mapping.restored({"a": ["/s3/b/x", 1], "b": None}) == {"a": ["s3://b/x", 1], "b": None}


@pytest.mark.parametrize(
    "text",
    ["s3://bucket/minio/x", "https://host/gcs/x", "/data/s3/x", "minio://minio/x", "a/s3/b", "/minio", "../s3/x"],
)
def test_what_only_looks_like_one_stays(text: str) -> None:
    """A folder of that name elsewhere is not the launcher's."""
    assert ArtifactPaths(ContainerPaths(), []).restored(text) == text


def test_an_artifact_s_own_path_is_mapped_too() -> None:
    """Kubeflow Pipelines lets an artifact have a path that its URI does not tell."""
    mapping = ArtifactPaths(
        ContainerPaths(), [("s3://b/model", "/data/model"), ("s3://b/model_run", "/data/model_run")]
    )
    assert mapping.restored_uri("/data/model/Format-Serving") == "s3://b/model/Format-Serving"
    assert mapping.restored("/data/model_run and /data/model") == "s3://b/model_run and s3://b/model"
    assert mapping.localized("s3://b/model_run, s3://b/model") == "/data/model_run, /data/model"


def test_only_the_step_s_own_artifacts_become_local() -> None:
    """Another URI names something that this disk does not have."""
    mapping = ArtifactPaths(ContainerPaths(), [("s3://b/model", "/s3/b/model")])
    assert mapping.localized({"current_model": "s3://b/model", "baseline": "s3://b/model_old"}) == {
        "current_model": "/s3/b/model",
        "baseline": "s3://b/model_old",
    }


@pytest.mark.parametrize("path", ["/tmp/x", "file:///tmp/x", "relative"])
def test_a_path_that_nothing_uploads_is_refused(path: str) -> None:
    """The launcher would only warn, and the next step find nothing."""
    with pytest.raises(ValueError, match="is a local path that nothing uploads"):
        ArtifactPaths(ContainerPaths(), []).restored_uri(path)
