"""`airlock doctor` tells what this machine can enforce."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata

from airlock.wall import layers
from airlock.wall.doctor import USER, Examination, MachineFact

DOCTOR = (
    "import typer; from airlock.commands.doctor import command; app = typer.Typer(); "
    "app.command()(command); app()"
)


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", DOCTOR, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_answers_a_program_and_agrees_with_the_probe() -> None:
    done = run("--json")
    answer = json.loads(done.stdout)
    offered = layers.choose("advisory", zone="open")
    assert {finding["name"] for finding in answer["layers"] if finding["good"]} == set(offered)
    assert done.returncode == (0 if offered >= layers.MINIMUM else 1)
    assert {finding["name"] for finding in answer["surroundings"]} >= {
        "recorder",
        "user",
        "limits",
        "temporary files",
        "swap",
        "core dumps",
        "GPU",
    }
    assert set(answer["versions"]) >= {"linux", "landlock", "python", "dvc", "torch"}
    told = subprocess.run(
        [sys.executable, "-m", "airlock", "--version"], capture_output=True, text=True, check=True
    )
    assert told.stdout == f"airlock {answer['versions']['airlock']}\n"
    assert answer["versions"]["airlock"] == metadata.version("airlock-pipeline")


def test_shows_a_person_every_layer() -> None:
    shown = run().stdout
    assert all(layer in shown for layer in layers.Layer)
    assert "boundary.enforcement" in shown


def examination(missing: frozenset[layers.Layer], *around: MachineFact) -> Examination:
    return Examination(
        tuple(MachineFact(layer, layer not in missing, "") for layer in layers.Layer), around, {}
    )


def test_names_the_strictest_enforcement_that_holds() -> None:
    assert examination(frozenset()).enforcement == "strict"
    assert examination(frozenset(), MachineFact(USER, False, "root")).enforcement == "auto"
    assert examination(frozenset({layers.Layer.ROOT})).enforcement == "auto"
    assert examination(frozenset({layers.Layer.SECCOMP})).enforcement == "advisory"
