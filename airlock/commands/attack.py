"""`airlock attack`: a lower bound on epsilon, measured on the release itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from airlock import files

if TYPE_CHECKING:
    from airlock.params import Params


def command(
    name: str = typer.Argument(
        None,
        metavar="[MECHANISM]",
        help="A mechanism, relevance, evaluation or synthetic; by default what params.yaml names.",
    ),
    epsilon: float = typer.Option(None, "--epsilon", help="Instead of release.epsilon."),
    neighbours: str = typer.Option(
        None, "--neighbours", help="zero-out or replace-one, instead of release.neighbours."
    ),
    option: list[str] = typer.Option(
        [], "--option", help="KEY=VALUE of release.options; may be given more than once."
    ),
    accounting: bool = typer.Option(
        False,
        "--accounting",
        help="Accounting check instead: draw the priced noise alone. It would not notice a wrong "
        "sensitivity.",
    ),
    like: str = typer.Option(
        "auto",
        "--like",
        help="For --accounting, shape of the records: sealed (data/sealed), mnist, usps, cifar10, or auto.",
    ),
    trials: int = typer.Option(
        None,
        "--trials",
        min=100,
        help="Counted runs a side: 1000 releases, or 200000 draws with --accounting.",
    ),
    confidence: float = typer.Option(
        0.99, "--confidence", min=0.5, max=0.999999, help="That all bounds of this attack hold together."
    ),
    seed: int = typer.Option(0, "--seed", help="The same seed gives the same finding."),
    noise_factor: float = typer.Option(
        1.0,
        "--noise-factor",
        min=1e-6,
        max=1e6,
        help="With --accounting or --canaries: attack a faulty copy; 0.5 is half the noise.",
    ),
    sampler: str = typer.Option(
        "auto", "--sampler", help="With --accounting: airlock (the release's own generator), numpy, or auto."
    ),
    release: Path = typer.Option(
        None,
        "--release",
        help="With --accounting: a release folder, for the shares that AdLM gave each feature.",
    ),
    records: Path = typer.Option(
        None,
        "--records",
        help="Attack on these records, with the last one and without it, instead of a search.",
    ),
    canaries: int = typer.Option(
        0, "--canaries", min=0, max=1_000_000, help="Audit one release with so many canaries instead."
    ),
    save: Path = typer.Option(
        None, "--save", help="Add the findings to this JSON file, for `airlock compare`."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Attack a mechanism and say how large epsilon is at least. Exit 1 if a claim or a proof is refuted.

    Example: airlock attack coefficients --epsilon 1 --trials 2000
    """
    import json

    from airlock.attack import attack
    from airlock.errors import InputError

    workspace = Path.cwd()
    params = attack.settle(
        attack.load_settled(workspace), name, epsilon=epsilon, neighbours=neighbours, options=option
    )
    if noise_factor != 1.0 and not (accounting or canaries):
        raise InputError("--noise-factor changes the drawn noise: give --accounting or --canaries with it")
    for given in (release, records):
        if given and not given.exists():
            raise InputError(f"there is no {given}: check the path")
    trials = trials or (200_000 if accounting else 1000)
    what = name if name in attack.STAGES else "release"
    schema = workspace / f"data/schemas/{params.dataset}.yaml"
    asked: dict[str, Any] = {
        "what": what,
        "accounting": accounting,
        "facts": asdict(attack.facts_of(workspace, like)) if accounting else None,
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
        "kind": rows[0]["kind"],
        "mechanism": params.release.mechanism if what == "release" else what,
        "epsilon": params.evaluate.epsilon if what == "evaluation" else params.release.epsilon,
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
        _print_canaries(rows)
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
    console = Console(stderr=True)
    with Progress(
        console=console, transient=True, disable=silent or not console.is_terminal
    ) as progress:  # a log gets none, nor the empty line below it

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
        if row.get("reached") is not None:
            law += f", {row['reached']:.3g} if its size is too"
        claimed = "" if row["claimed"] is None else f"claimed {row['claimed']:.3g}, "
        proven = "nothing is proven" if row["proven"] == "infinity" else f"proven {row['proven']:.3g}"
        console.print(f"[bold]{row['law']}[/bold]: {row['pair']}")
        console.print(
            f"  epsilon is at least [bold]{row['epsilon']:.3g}[/bold]{law} (delta {row['delta']:g}); "
            f"{claimed}{proven}"
        )
        console.print(
            f"  {row['hits']} hits and {row['false_alarms']} false alarms in {row['trials']} runs a side; "
            f"{row['verdict']}"
        )
    console.print(
        f"{rows[0]['kind'].capitalize()}. Confidence {rows[0]['confidence']:.6g} for each bound, seed "
        f"{rows[0]['seed']}; "
        f"what had to be chosen was chosen on other runs."
    )


def _print_canaries(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        proven = "nothing is proven" if row["proven"] == "infinity" else f"proven {row['proven']:.3g}"
        by_law = "" if row["by_law"] is None else f", {row['by_law']:.3g} by the proven trade-off curve"
        typer.echo(
            f"{row['law']}: epsilon is at least {row['epsilon']:.3g}{by_law} "
            f"({row['right']} of {row['guesses']} guesses right); {proven}, {row['verdict']}"
        )


def _add(path: Path, document: dict[str, Any]) -> None:
    """One entry for each kind, mechanism, epsilon, options and noise; a newer finding takes an older one's
    place.
    """
    import json

    from airlock.compare.comparison import with_kind

    kept = [with_kind(one) for one in json.loads(path.read_text())["attacks"]] if path.exists() else []
    identity = ("kind", "mechanism", "epsilon", "neighbours", "options", "noise_factor")
    kept = [one for one in kept if [one[key] for key in identity] != [document[key] for key in identity]]
    files.deliver(path, json.dumps({"attacks": [*kept, document]}, indent=1, sort_keys=True) + "\n")
