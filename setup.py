"""What pyproject.toml cannot say: a wheel carries the stages and the pipeline that `airlock new` starts from.

They are data in it, under airlock/workspaces/shipped: nothing there is imported.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SHIPPED = (
    "stages",
    "owner",
    "data/schemas",
    "data/encoders/README.md",
    "dvc.yaml",
    "params.yaml",
    "constraints.txt",
    "LICENSE",
)


class WithStages(build_py):
    """The packages, and what is shipped beside them."""

    def run(self) -> None:
        super().run()
        if getattr(self, "editable_mode", False):
            return
        target = Path(self.build_lib, "airlock/workspaces/shipped")
        shutil.rmtree(target, ignore_errors=True)
        for name in SHIPPED:
            source = Path(__file__).parent / name
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.pyc", "dvc.lock")
                shutil.copytree(source, target / name, ignore=ignored)
            else:
                shutil.copyfile(source, target / name)


setup(cmdclass={"build_py": WithStages})
