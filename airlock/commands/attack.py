"""`airlock attack`: a lower bound on epsilon, measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from airlock.params import Params


def command(
    name: str = typer.Argument(
        None, metavar="[MECHANISM]", help="A mechanism; by default what params.yaml names."
    ),
    epsilon: float = typer.Option(None, "--epsilon", help="Instead of release.epsilon."),
    neighbours: str = typer.Option(
        None, "--neighbours", help="zero-out or replace-one, instead of release.neighbours."
    ),
    option: list[str] = typer.Option(
        [], "--option", help="KEY=VALUE of release.options; may be given more than once."
    ),
    like: str = typer.Option(
        "auto", "--like", help="Shape of the records: sealed (data/sealed), mnist, usps, cifar10, or auto."
    ),
    trials: int = typer.Option(
        None,
        "--trials",
        min=100,
        help="Runs a side, to choose and again to count: 200000, or 500 with --records.",
    ),
    confidence: float = typer.Option(
        0.99, "--confidence", min=0.5, max=0.999999, help="That all bounds of this attack hold together."
    ),
    seed: int = typer.Option(0, "--seed", help="The same seed gives the same finding."),
    noise_factor: float = typer.Option(
        1.0, "--noise-factor", min=1e-6, help="Attack a faulty copy: 0.5 is half the noise."
    ),
    sampler: str = typer.Option(
        "auto", "--sampler", help="airlock (the release's own generator), numpy, or auto."
    ),
    release: Path = typer.Option(
        None, "--release", help="A release folder, for the shares that AdLM gave each feature."
    ),
    records: Path = typer.Option(
        None, "--records", help="Run the release itself on these records, with the last one and without it."
    ),
    canaries: int = typer.Option(
        0, "--canaries", min=0, help="Audit one release and training with so many canaries instead."
    ),
    save: Path = typer.Option(
        None, "--save", help="Add the findings to this JSON file, for `airlock compare`."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Attack a mechanism and say how large epsilon is at least. Exit 1 if a claim or a proof is refuted.

    Example: airlock attack ilm --epsilon 1.5 --option preset=paper-literal --option sensitivity=pooled-map --like mnist
    """
    import json

    from airlock.attack import attack
    from airlock.params import load_params

    workspace = Path.cwd()
    params = attack.settle(
        load_params(workspace / "params.yaml"), name, epsilon=epsilon, neighbours=neighbours, options=option
    )
    trials = trials or (500 if records else 200_000)
    schema = workspace / f"data/schemas/{params.dataset}.yaml"
    asked: dict[str, Any] = {
        "facts": None if records else asdict(attack.facts_of(workspace, like)),
        "canaries": canaries,
        "trials": trials,
        "confidence": confidence,
        "seed": seed,
        "factor": noise_factor,
        "sampler": attack.check_sampler(sampler),
        "release": str(release.resolve()) if release else None,
        "records": str(records.resolve()) if records else None,
        "schema": str(schema),
    }
    reads = [*([schema] if records else []), *(path.resolve() for path in (release, records) if path)]
    rows = _ask(params, asked, reads, workspace, silent=as_json)
    document = {
        "mechanism": params.release.mechanism,
        "epsilon": params.release.epsilon,
        "neighbours": params.release.neighbours,
        "options": params.release.options,
        "noise_factor": noise_factor,
        "findings": rows,
    }
    if save:
        _add(save, document)
    if as_json:
        typer.echo(json.dumps(document, indent=1))
    elif canaries:
        guessed = (
            f"{rows[0]['right']} of {rows[0]['guesses']} guesses right, proven {float(rows[0]['proven']):.3g}"
        )
        typer.echo(f"canaries in one training run: epsilon is at least {rows[0]['epsilon']:.3g} ({guessed})")
    else:
        _print(rows)
    if any(row["verdict"].startswith("refutes") for row in rows):
        raise typer.Exit(1)


def _ask(
    params: Params, asked: dict[str, Any], reads: list[Path], workspace: Path, *, silent: bool
) -> list[dict[str, Any]]:
    """Run the attack behind the wall: the mechanisms are code that an analyst can edit."""
    from rich.console import Console
    from rich.progress import Progress

    from airlock.owner.home import project
    from airlock.run.questions import ask

    tasks: dict[str, Any] = {}
    with Progress(console=Console(stderr=True), transient=True, disable=silent) as progress:

        def listen(event: Mapping[str, Any]) -> None:
            if event["kind"] == "progress":
                label = "".join(filter(str.isprintable, str(event["label"])))[:60]
                task = tasks.setdefault(label, None) or progress.add_task(label, total=float(event["total"]))
                tasks[label] = task
                progress.update(task, completed=float(event["done"]))

        rows: list[dict[str, Any]] = ask(
            "stages.attack",
            asked,
            params=params,
            workspace=workspace,
            project=project(workspace),
            reads=reads,
            listen=listen,
        )
    return rows


def _print(rows: list[dict[str, Any]]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for row in rows:
        by_law = row.get("by_law")
        law = "" if by_law is None else f", {by_law:.3g} if the form of its noise is taken for granted"
        claimed = "" if row["claimed"] is None else f"claimed {row['claimed']:.3g}, "
        proven = "nothing is proven" if row["proven"] == "infinity" else f"proven {row['proven']:.3g}"
        console.print(f"[bold]{row['law']}[/bold]: {row['pair']}")
        console.print(
            f"  epsilon is at least [bold]{row['epsilon']:.3g}[/bold]{law} (delta {row['delta']:g}); {claimed}{proven}"
        )
        console.print(
            f"  {row['hits']} hits and {row['false_alarms']} false alarms in {row['trials']} runs a side; "
            f"{row['verdict']}"
        )
    console.print(
        f"Confidence {rows[0]['confidence']:.6g} for each bound, seed {rows[0]['seed']}; "
        f"thresholds were chosen on as many other runs."
    )


def _add(path: Path, document: dict[str, Any]) -> None:
    """One entry for each mechanism, epsilon, options and noise; a newer finding takes an older one's place."""
    import json

    kept = json.loads(path.read_text())["attacks"] if path.exists() else []
    identity = ("mechanism", "epsilon", "neighbours", "options", "noise_factor")
    kept = [one for one in kept if [one[key] for key in identity] != [document[key] for key in identity]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"attacks": [*kept, document]}, indent=1, sort_keys=True) + "\n")
