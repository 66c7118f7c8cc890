"""stub"""

from lockstep.pipelines.kubeflow.package import Package


def check(package: Package) -> None:
    """Stub."""
