"""Rules of a package's executors: commands, arguments, environment, resources, importers.

Places in the comments are below ``backend/src`` of Kubeflow Pipelines.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from lockstep.pipelines.kubeflow.findings import KUBEFLOW_PLACEHOLDER, Finding
from lockstep.pipelines.kubeflow.options import quantity

_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_STORE_URI = re.compile(r"(minio|s3|gs)://[^/]+/.+|oci://.+")
# v2/compiler/argocompiler/argo.go: images for which Kubeflow runs nothing.
_STUB_IMAGES = ("argostub/createpvc", "argostub/deletepvc")
_KINDS = ("container", "importer", "resolver", "customJob")


def container_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields what is wrong with the executors of a PipelineSpec of the right structure."""
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    for label, executor in executors.items():
        place = f"deploymentSpec.executors.{label}"
        kinds = [kind for kind in _KINDS if kind in executor]
        if len(kinds) != 1:
            yield Finding(place=place, reason="needs a 'container' or an 'importer', one of the two")
        elif kinds == ["container"]:
            yield from _one_container_findings(f"{place}.container", executor["container"])
        elif kinds == ["importer"]:
            yield from _importer_findings(f"{place}.importer", executor["importer"])
        elif kinds == ["resolver"]:  # v2/compiler/visitor.go
            yield Finding(
                place=place,
                reason="Kubeflow implements no resolver (TFX's Resolver node); take an importer, or"
                " Lockstep's Evaluator, which finds the served model itself",
            )
        else:
            yield Finding(place=place, reason="a custom job runs on Google Cloud alone; take a container")
    yield from _twin_findings(spec)


def _one_container_findings(place: str, container: Mapping[str, Any]) -> Iterator[Finding]:
    image = container.get("image", "")
    if not image or re.search(r"\s", image):
        yield Finding(place=f"{place}.image", reason=f"{image!r} is not allowed; give an image", key="kubeflow.image")
    if image in _STUB_IMAGES:
        return
    if not container.get("command"):  # The launcher runs it itself: the image's own entry point is not taken.
        yield Finding(place=f"{place}.command", reason="is absent; Kubeflow does not take the image's own")
    if "lifecycle" in container:
        yield Finding(
            place=f"{place}.lifecycle",
            reason="open-source Kubeflow ignores it: its cache would serve old results for new data; lockstep"
            " compile makes a probe of it",
        )
    for kind in ("command", "args"):
        for index, argument in enumerate(container.get(kind, [])):
            if "{{" in KUBEFLOW_PLACEHOLDER.sub("", argument):
                yield Finding(
                    place=f"{place}.{kind}[{index}]",
                    reason="holds '{{', which Argo takes for a tag of its own; write it otherwise",
                )
    yield from _variable_findings(f"{place}.env", container.get("env", []))
    yield from _resource_findings(f"{place}.resources", container.get("resources", {}))


def _variable_findings(place: str, variables: list[Mapping[str, str]]) -> Iterator[Finding]:
    seen = set()
    for variable in variables:
        name = variable.get("name", "")
        if not _ENV_NAME.fullmatch(name):
            yield Finding(
                place=place,
                reason=f"the name {name!r} is not allowed; give letters, digits and '_'",
                key="kubeflow.env",
            )
        if name in seen:
            yield Finding(place=place, reason=f"{name} stands twice", key="kubeflow.env")
        seen.add(name)


def _resource_findings(place: str, resources: Mapping[str, Any]) -> Iterator[Finding]:
    key = "kubeflow.resources"
    amounts = {}
    for name in ("cpu", "memory"):
        for side in ("Request", "Limit"):
            old, new = resources.get(f"{name}{side}", 0), resources.get(f"resource{name.capitalize()}{side}", "")
            if old < 0:
                yield Finding(place=f"{place}.{name}{side}", reason=f"{old} is not allowed; give 0 or more", key=key)
            try:
                amount = quantity(new) if new and not new.startswith("{{$") else old * (1 if name == "cpu" else 1e9)
            except ValueError as e:
                yield Finding(place=f"{place}.resource{name.capitalize()}{side}", reason=str(e), key=key)
                continue
            amounts[name, side] = amount
        request, limit = amounts.get((name, "Request"), 0), amounts.get((name, "Limit"), 0)
        if limit and request > limit:
            yield Finding(
                place=place,
                reason=f"{name}: the request, {request:g}, is above the limit, {limit:g}",
                key=f"{key}.{name}",
            )
    accelerator = resources.get("accelerator")
    if accelerator is not None:
        yield from _accelerator_findings(f"{place}.accelerator", accelerator)


def _accelerator_findings(place: str, accelerator: Mapping[str, Any]) -> Iterator[Finding]:
    # v2/driver/driver.go: the type is the name of the node's resource.
    kind = accelerator.get("resourceType") or accelerator.get("type", "")
    count = accelerator.get("resourceCount") or accelerator.get("count", 0)
    if "/" not in kind and not kind.startswith("{{$"):
        yield Finding(
            place=f"{place}.type",
            reason=f"{kind!r} is no resource of a node; give its full name, such as nvidia.com/gpu",
            key="kubeflow.resources.accelerator",
        )
    if not (str(count).startswith("{{$") or (str(count).isdecimal() and int(count) >= 1)):
        yield Finding(
            place=f"{place}.count",
            reason=f"{count!r} is not allowed; give 1 or more",
            key="kubeflow.resources.accelerator_count",
        )


def _importer_findings(place: str, importer: Mapping[str, Any]) -> Iterator[Finding]:
    uri = importer.get("artifactUri", {})
    if "constant" not in uri and not uri.get("runtimeParameter"):
        yield Finding(place=f"{place}.artifactUri", reason="is absent; give a constant, or a run-time parameter")
    constant = uri.get("constant")
    if constant is not None and not (isinstance(constant, str) and _STORE_URI.fullmatch(constant)):
        # v2/component/importer_launcher.go: "no provider scheme found".
        yield Finding(
            place=f"{place}.artifactUri.constant",
            reason=f"{constant!r} is not allowed; Kubeflow imports from minio://, s3:// and gs://BUCKET/PATH",
        )
    if not importer.get("typeSchema"):
        yield Finding(place=f"{place}.typeSchema", reason="is absent")


def _twin_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    """Yields components that Kubeflow would take for one: its compiler keys them by their container alone."""
    executors = spec.get("deploymentSpec", {}).get("executors", {})
    seen: dict[str, str] = {}  # v2/compiler/argocompiler/argo.go, hashComponentContainer
    for name, component in sorted(spec.get("components", {}).items()):
        container = executors.get(component.get("executorLabel", ""), {}).get("container")
        if container is None:
            continue
        first = seen.setdefault(json.dumps(container, sort_keys=True), name)
        if first != name:
            yield Finding(
                place=f"components.{name}",
                reason=f"its container equals that of {first!r}, whose inputs and outputs Kubeflow would take for it;"
                " give it an argument of its own",
            )
