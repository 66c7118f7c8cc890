"""The kubeflow block refuses what a cluster would, with the key."""

import re
from typing import Any

import pytest

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.config import load_package_config
from lockstep.pipelines.kubeflow.options import (
    AffinityOptions,
    KubeflowOptions,
    ResourceOptions,
    RetryOptions,
    SecretOptions,
    StepOptions,
    StoreOptions,
    TolerationOptions,
    VolumeOptions,
    quantity,
)


@pytest.mark.parametrize(
    ("text", "number"),
    [("2", 2.0), ("500m", 0.5), ("1.5", 1.5), ("4Gi", 4 * 2**30), ("4G", 4e9), (".5", 0.5), ("10k", 1e4)],
)
def test_quantities_are_those_of_kubernetes(text: str, number: float) -> None:
    """Decimal and binary suffixes, and thousandths."""
    assert quantity(text) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "-1", "1x", "1e3", "4GB", "m", "1 Gi"])
def test_other_text_is_no_quantity(text: str) -> None:
    """The message names the value and shows what is allowed."""
    with pytest.raises(ValueError, match="give a quantity of Kubernetes"):
        quantity(text)


@pytest.mark.parametrize(
    ("cls", "values", "key"),
    [
        (StoreOptions, {"endpoint": "minio:9000"}, "endpoint:"),
        (StoreOptions, {"endpoint": "http://me:PW@host"}, "endpoint: '@', '?' and '#' are not allowed; give"),
        (ResourceOptions, {"memory": "9" * 5000}, "memory: '999"),
        (
            ResourceOptions,
            {"memory": "9223372036854775808"},
            "memory: '9223372036854775808' is not allowed; Kubernetes",
        ),
        (KubeflowOptions, {"image": ""}, "image: '' is not allowed"),
        (StoreOptions, {"secret": "My_Secret"}, "secret:"),
        (SecretOptions, {}, "env: nothing is taken"),
        (SecretOptions, {"env": {"A-B": "key"}}, "env: the name 'A-B'"),
        (SecretOptions, {"env": {"A": "a/b"}}, "env.A:"),
        (SecretOptions, {"mount_path": "etc"}, "mount_path:"),
        (VolumeOptions, {"mount_path": "/a:b"}, "mount_path:"),
        (VolumeOptions, {"mount_path": "/minio/x"}, "a folder of Kubeflow's own"),
        (VolumeOptions, {"mount_path": "/a", "claim": "a.b"}, "claim:"),
        (VolumeOptions, {"mount_path": "/a", "sub_path": "x"}, "sub_path: not allowed without claim"),
        (VolumeOptions, {"mount_path": "/a", "claim": "c", "sub_path": "../x"}, "sub_path:"),
        (VolumeOptions, {"mount_path": "/a", "claim": "c", "medium": "memory"}, "medium, size_limit:"),
        (VolumeOptions, {"mount_path": "/a", "size_limit": "2GB"}, "size_limit:"),
        (RetryOptions, {"max": -1}, "max:"),
        (RetryOptions, {"backoff_s": 0}, "backoff_s:"),
        (RetryOptions, {"factor": 0}, "factor:"),
        (RetryOptions, {"window_s": 30}, "window_s:"),
        (ResourceOptions, {"cpu": "0"}, "cpu:"),
        (ResourceOptions, {"memory": "4"}, "memory:"),
        (ResourceOptions, {"memory": "4Gi", "memory_limit": "4G"}, "memory: '4Gi' is above memory_limit"),
        (ResourceOptions, {"accelerator": "gpu"}, "accelerator:"),
        (ResourceOptions, {"accelerator_count": 0}, "accelerator_count:"),
        (TolerationOptions, {"operator": "Equal"}, "key: required"),
        (TolerationOptions, {"key": "a", "value": "b"}, "value:"),
        (TolerationOptions, {"key": "a", "seconds": 3}, "seconds:"),
        (AffinityOptions, {"key": "a"}, "values: operator In needs"),
        (AffinityOptions, {"key": "a", "operator": "Exists", "values": ("b",)}, "values: not allowed"),
        (AffinityOptions, {"key": "a", "operator": "Gt", "values": ("x",)}, "values:"),
        (AffinityOptions, {"key": "a", "values": ("x",), "weight": 0}, "weight:"),
        (StepOptions, {"labels": {"a b": "c"}}, "labels: the name 'a b'"),
        (StepOptions, {"node_selector": {"a": "c d"}}, "node_selector.a:"),
        (StepOptions, {"annotations": {"/a": "c"}}, "annotations: the name"),
        (StepOptions, {"deadline_s": 0}, "deadline_s:"),
        (KubeflowOptions, {"image": "a b"}, "image:"),
        (KubeflowOptions, {"image_pull_secrets": ("A",)}, "image_pull_secrets:"),
        (KubeflowOptions, {"pipeline_root": "/mnt/x"}, "pipeline_root:"),
        (KubeflowOptions, {"pipeline_root": "hdfs://a/b"}, "pipeline_root:"),
        (KubeflowOptions, {"work_dir": "work"}, "work_dir:"),
        (KubeflowOptions, {"volumes": {"A": VolumeOptions(mount_path="/a")}}, "volumes: the name 'A'"),
        (KubeflowOptions, {"volumes": {"gcs-scratch": VolumeOptions(mount_path="/a")}}, "a volume of Kubeflow's own"),
        (
            KubeflowOptions,
            {"volumes": {"a": VolumeOptions(mount_path="/a"), "b": VolumeOptions(mount_path="/a/")}},
            "volumes.b.mount_path:",
        ),
        (
            KubeflowOptions,
            {
                "volumes": {
                    "a": VolumeOptions(mount_path="/a", claim="c"),
                    "b": VolumeOptions(mount_path="/b", claim="c"),
                }
            },
            "volumes.b: Kubeflow names its volume 'c'",
        ),
        (
            KubeflowOptions,
            {"secrets": {"s": SecretOptions(env={"AWS_ACCESS_KEY_ID": "k"})}},
            "secrets.s.env: AWS_ACCESS_KEY_ID is set by store",
        ),
        (KubeflowOptions, {"env": {"AWS_ACCESS_KEY_ID": "k"}}, "env: AWS_ACCESS_KEY_ID is set by store"),
        (
            KubeflowOptions,
            {"env": {"A": "b"}, "config_maps": {"s": SecretOptions(env={"A": "k"})}},
            "config_maps.s.env: A is set by env",
        ),
    ],
)
def test_what_a_cluster_would_refuse_is_refused(cls: Any, values: dict[str, Any], key: str) -> None:
    """The message begins with the key, relative to the block."""
    with pytest.raises(ValueError, match=re.escape(key)):
        cls(**values)


def test_a_bare_kubeflow_needs_no_keys() -> None:
    """The defaults are Kubeflow's own store and its secret; another store brings its own."""
    bare = KubeflowOptions()
    assert (bare.store_endpoint, bare.store_secret) == (
        "http://minio-service.kubeflow:9000",
        "mlpipeline-minio-artifact",
    )
    cloud = KubeflowOptions(pipeline_root="s3://bucket/path")
    assert (cloud.store_endpoint, cloud.store_secret) == (None, None)


def test_a_steps_values_stand_beside_or_instead_of_the_general_ones() -> None:
    """Mappings are merged, lists added, the rest replaced; a probe asks for little and is never cached."""
    options = KubeflowOptions(
        resources=ResourceOptions(cpu="4"),
        env={"A": "general", "B": "general"},
        tolerations=(TolerationOptions(key="a"),),
        deadline_s=60,
        components={"Trainer": StepOptions(env={"A": "own"}, tolerations=(TolerationOptions(key="b"),))},
    )
    trainer = options.of_step("Trainer", probe=False)
    assert (trainer.resources, trainer.deadline_s, trainer.cache) == (ResourceOptions(cpu="4"), 60, True)
    assert trainer.env == {"A": "own", "B": "general"}
    assert [toleration.key for toleration in trainer.tolerations] == ["a", "b"]
    probe = options.of_step("ExampleGen-probe", probe=True)
    assert (probe.cache, probe.resources) == (False, ResourceOptions(cpu="500m", memory="1Gi"))


def test_a_claim_holds_paths_below_its_mount_alone() -> None:
    """Neither a folder that only begins alike, nor one that another step mounts."""
    options = KubeflowOptions(volumes={"a": VolumeOptions(mount_path="/mnt", claim="c", components=("Pusher",))})
    assert options.mounted("/mnt/x", ("Pusher",))
    assert not options.mounted("/mnt2/x", ("Pusher",))
    assert not options.mounted("/mnt/x", ("Pusher", "Evaluator"))


def test_the_configuration_names_the_nearest_key_within_lists_and_mappings() -> None:
    """A misspelled key is told with its place, however deep it is."""
    with pytest.raises(
        ConfigurationError, match=r"kubeflow\.tolerations\.0\.efect: no such key; did you mean .*effect"
    ):
        load_package_config("taxi", overrides=["kubeflow.tolerations=[{efect: NoExecute}]"])
    with pytest.raises(ConfigurationError, match=r"kubeflow\.components\.Trainer\.cach: no such key.*cache"):
        load_package_config("taxi", overrides=["kubeflow.components={Trainer: {cach: true}}"])


def test_paths_stay_as_they_are_written_and_push_has_a_default() -> None:
    """The paths of a package are the containers'."""
    config = load_package_config("taxi", overrides=["kubeflow.pipeline_root=gs://bucket/root/"]).config
    assert config.data.path == "package:tfx/examples/chicago_taxi_pipeline/data/simple/data.csv"
    assert config.push.dir == "gs://bucket/root/taxi/pushed"
    assert load_package_config("taxi", overrides=["push.dir=s3://b/x"]).config.push.dir == "s3://b/x"
