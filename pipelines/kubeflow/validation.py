"""What Kubeflow Pipelines, Argo or Kubernetes would refuse of a package, or take for something else than it says.

Read from the sources of Kubeflow Pipelines 2.5 to 2.17 and of Argo Workflows; comments name the place. Any package can
be validated, also one that was edited by hand.
"""

from collections.abc import Iterator

from lockstep.components.errors import ConfigurationError
from lockstep.pipelines.kubeflow.container_rules import container_findings
from lockstep.pipelines.kubeflow.findings import Finding
from lockstep.pipelines.kubeflow.package import SCHEMA_VERSION, Package
from lockstep.pipelines.kubeflow.pipeline_rules import pipeline_findings
from lockstep.pipelines.kubeflow.platform_rules import platform_findings
from lockstep.pipelines.kubeflow.schema import (
    DEPLOYMENT,
    EXECUTOR_CONFIG,
    PIPELINE_SPEC,
    PLATFORM_SPEC,
    structure_findings,
)
from lockstep.pipelines.kubeflow.size_rules import size_findings

__all__ = ["Finding", "check", "validate"]

_MAX_SHOWN = 20


def validate(package: Package) -> list[Finding]:
    """Returns everything that is wrong with a package; nothing where Kubeflow takes it.

    What only a look at the structure tells comes first: where there is any of it, it is all that is returned.
    """
    findings = list(_structure(package))
    if not findings:
        findings = [
            *pipeline_findings(package.spec),
            *container_findings(package.spec),
            *(platform_findings(package) if package.platform is not None else ()),
            *size_findings(package),
        ]
    return findings


def check(package: Package, source: str = "package") -> None:
    """Raises ConfigurationError with the findings, a line each, if there are any."""
    findings = validate(package)
    if findings:
        lines = [f"{source}: {finding}" for finding in findings[:_MAX_SHOWN]]
        if len(findings) > _MAX_SHOWN:
            lines.append(f"{source}: and {len(findings) - _MAX_SHOWN} more")
        raise ConfigurationError("\n".join(lines))


def _structure(package: Package) -> Iterator[Finding]:
    spec = package.spec
    for key, value in spec.items():
        if key not in ("pipelineInfo", "root", "components", "deploymentSpec", "schemaVersion"):
            continue
        if key != "schemaVersion" and not isinstance(value, dict):
            yield Finding(place=key, reason=f"{value!r} is not allowed; Kubeflow takes a mapping")
    if spec.get("schemaVersion") != SCHEMA_VERSION:  # apiserver/template/v2_template.go
        yield Finding(
            place="schemaVersion", reason=f"{spec.get('schemaVersion')!r} is not allowed; Kubeflow takes '2.1.0' alone"
        )
    yield from structure_findings(dict(spec), PIPELINE_SPEC, "spec")
    yield from structure_findings(spec.get("deploymentSpec", {}), DEPLOYMENT, "deploymentSpec")
    if package.platform is None:
        return
    yield from structure_findings(dict(package.platform), PLATFORM_SPEC, "platform")
    platforms = package.platform.get("platforms")
    kubernetes = platforms.get("kubernetes") if isinstance(platforms, dict) else None
    if not (isinstance(kubernetes, dict) and "deploymentSpec" in kubernetes):
        # The server passes over a document without 'kubernetes'; without the rest v2/compiler/visitor.go breaks down.
        yield Finding(place="platforms.kubernetes.deploymentSpec", reason="is absent; leave the second document out")
    for name, platform in (platforms if isinstance(platforms, dict) else {}).items():
        if name != "kubernetes":
            yield Finding(place=f"platforms.{name}", reason="open-source Kubeflow reads 'kubernetes' alone")
        elif isinstance(platform, dict) and isinstance(platform.get("deploymentSpec", {}), dict):
            executors = platform.get("deploymentSpec", {}).get("executors", {})
            for label, config in (executors if isinstance(executors, dict) else {}).items():
                yield from structure_findings(config, EXECUTOR_CONFIG, f"platforms.kubernetes.executors.{label}")
