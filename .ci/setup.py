"""Set up .venv for the Makefile: say first how much will be downloaded, then show what pip is doing, in one line.

On Linux the package index serves torch with CUDA libraries, several gigabytes of them, whether or not there is a GPU.
Where none is seen, this says so and how to choose: `make run TORCH_INDEX=URL` takes torch from an index of CPU builds
(PyTorch's "Get started" page names one). Only the standard library is there yet.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TORCH = "torch==2.13.0"
EXTRAS = ".[bundles,cluster,dev,onnx,pages,schedule]"
PIP = ("-m", "pip", "--disable-pip-version-check")
CUDA = ("nvidia-", "cuda-", "triton")
ASK_ABOVE = 1e9  # bytes; less is not worth a question


def main(python: str, index: str) -> int:
    """Install torch from `index` (or the usual one), then the rest."""
    chosen = ["--index-url", index] if index else []
    found = planned(python, [*chosen, TORCH])
    size = sum(filter(None, map(size_of, found)))
    unneeded = [one["metadata"]["name"] for one in found if one["metadata"]["name"].startswith(CUDA)]
    if found:
        print(f"torch and what it needs: {len(found)} packages, {said(size)} to download")
    if unneeded and not gpu() and not index:
        print(
            f"  {len(unneeded)} of them are CUDA libraries, and no GPU is seen here. A CPU build is far smaller:"
        )
        print("  make run TORCH_INDEX=URL, with the address of CPU builds from PyTorch's installation page")
        if (
            size > ASK_ABOVE
            and sys.stdin.isatty()
            and input("  Go on with CUDA? [y/N] ").lower() not in ("y", "yes")
        ):
            return 1
    constraints = ["-c", "constraints.txt"]
    return run(python, [*constraints, *chosen, TORCH]) or run(python, [*constraints, "-e", EXTRAS])


def planned(python: str, arguments: Sequence[str]) -> list[Mapping[str, Any]]:
    """What pip would install; nothing where it cannot tell."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        asked = [
            python,
            *PIP,
            "install",
            "--quiet",
            "--dry-run",
            "--report",
            str(report),
            "-c",
            "constraints.txt",
        ]
        done = subprocess.run([*asked, *arguments], capture_output=True, check=False)
        if done.returncode != 0 or not report.exists():
            return []
        return list(json.loads(report.read_text())["install"])


def size_of(one: Mapping[str, Any]) -> int | None:
    """Bytes of a package, from the file or from the server's answer to a question for its head."""
    address = one["download_info"]["url"]
    try:
        if address.startswith("file:"):
            return os.path.getsize(urllib.parse.unquote(urllib.parse.urlsplit(address).path))
        asked = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(asked, timeout=5) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def gpu() -> bool:
    """Whether an NVIDIA GPU is seen."""
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/proc/driver/nvidia/version").exists()


def said(size: float) -> str:
    """A size for people."""
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"


def run(python: str, arguments: Sequence[str]) -> int:
    """pip install, with one line that says what it is at; its own words only if it fails."""
    command = [python, *PIP, "install", "--progress-bar", "off", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    kept = list(shown(process.stdout, time.monotonic()))
    if code := process.wait():
        print("\n" + "".join(kept[-20:]))
        return code
    return 0


def shown(lines: Iterator[str], start: float) -> Iterator[str]:
    """Each line, after telling on the terminal what pip is doing; elsewhere, a line for every download."""
    count, live = 0, sys.stdout.isatty()
    for line in lines:
        words = line.split()
        if words[:1] in (["Collecting"], ["Downloading"], ["Installing"], ["Building"], ["Preparing"]):
            count += words[0] == "Collecting"
            text = f"[{time.monotonic() - start:3.0f} s] {count} packages; {' '.join(words)[:60]}"
            if live:
                print(f"\r{text:<90}", end="", flush=True)
            elif words[0] in ("Downloading", "Installing"):
                print(text[:100], flush=True)
        yield line
    if live:
        print(f"\r{f'[{time.monotonic() - start:3.0f} s] {count} packages: done':<90}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], os.environ.get("TORCH_INDEX", "")))
