"""`airlock attack`: a lower bound on epsilon, measured."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress

    from stages.attack import Verdict


def command(
    name: str = typer.Argument(None, metavar="[MECHANISM]", help="A mechanism; by default what params.yaml names."),
    epsilon: float = typer.Option(None, "--epsilon", help="Instead of release.epsilon."),
    neighbours: str = typer.Option(None, "--neighbours", help="zero-out or replace-one, instead of release.neighbours."),
    option: list[str] = typer.Option([], "--option", help="KEY=VALUE of release.options; may be given more than once."),
    like: str = typer.Option("auto", "--like", help="Shape of the records: sealed (data/sealed), mnist, usps, cifar10, or auto."),
    trials: int = typer.Option(None, "--trials", min=100, help="Runs a side, to choose and again to count: 200000, or 500 with --records."),
    confidence: float = typer.Option(0.99, "--confidence", min=0.5, max=0.999999, help="That all bounds of this attack hold together."),
    seed: int = typer.Option(0, "--seed", help="The same seed gives the same finding."),
    noise_factor: float = typer.Option(1.0, "--noise-factor", min=1e-6, help="Attack a faulty copy: 0.5 is half the noise."),
    sampler: str = typer.Option("auto", "--sampler", help="airlock (the release's own generator), numpy, or auto."),
    release: Path = typer.Option(None, "--release", help="A release folder, for the shares that AdLM gave each feature."),
    records: Path = typer.Option(None, "--records", help="Run the release itself on these records, with the last one and without it."),
    canaries: int = typer.Option(0, "--canaries", min=0, help="Audit one release and training with so many canaries instead."),
    save: Path = typer.Option(None, "--save", help="Add the findings to this JSON file, for `airlock compare`."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Attack a mechanism and say how large epsilon is at least. Exit 1 if a claim or a proof is refuted.

    Example: airlock attack ilm --epsilon 1.5 --option preset=paper-literal --option sensitivity=pooled-map --like mnist
    """
    import json

    from stages import attack
    from stages.params import load_params

    workspace = Path.cwd()
    params = attack.settle(load_params(workspace / "params.yaml"), name, epsilon=epsilon, neighbours=neighbours, options=option)
    verdicts: list[Verdict] = []
    if canaries:
        from stages import canary_audit

        found = canary_audit.run(params, canaries=canaries, seed=seed, confidence=confidence, factor=noise_factor)
        rows = [found]
    else:
        if records:
            trials = trials or 500
            targets = [attack.given(params, workspace, records, seed=seed, runs=trials)]
        else:
            trials = trials or 200_000
            facts = attack.facts_of(workspace, like)
            targets = attack.targets_of(params, facts, factor=noise_factor, release=_tensors(release))
        verdicts = _attack_all(targets, trials=trials, confidence=confidence, seed=seed, sampler=sampler, silent=as_json)
        rows = [verdict.to_json() for verdict in verdicts]
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
        guessed = f"{rows[0]['right']} of {rows[0]['guesses']} guesses right, proven {float(rows[0]['proven']):.3g}"
        typer.echo(f"canaries in one training run: epsilon is at least {rows[0]['epsilon']:.3g} ({guessed})")
    else:
        _print(verdicts)
    if any(row["verdict"].startswith("refutes") for row in rows):
        raise typer.Exit(1)


def _tensors(folder: Path | None) -> dict[str, Any] | None:
    """The tensors of a release, checked against its manifest."""
    if folder is None:
        return None
    from safetensors.numpy import load_file

    from stages.boundary import manifest

    manifest.load(folder)
    return dict(load_file(folder / "release.safetensors"))


def _attack_all(targets: list[Any], *, silent: bool, **how: Any) -> list[Verdict]:
    from rich.console import Console
    from rich.progress import Progress

    from stages.attack import attack

    found = []
    # A pair of neighbours at the very edge of the proof is passed by chance as often as the bound allows: divide that by all bounds.
    bounds = sum(1 if target.law.family is None else 2 for target in targets)
    how["confidence"] = 1 - (1 - how["confidence"]) / bounds
    with Progress(console=Console(stderr=True), transient=True, disable=silent) as progress:
        for target in targets:
            task = progress.add_task(target.law.name, total=4 * how["trials"])
            found.append(attack(target, tick=partial(_advance, progress, task), **how))
    return found


def _advance(progress: Progress, task: Any, done: int, total: int) -> None:
    progress.update(task, completed=done, total=total)


def _print(verdicts: list[Verdict]) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for verdict in verdicts:
        finding, target = verdict.finding, verdict.target
        law = "" if finding.by_law is None else f", {finding.by_law:.3g} if the form of its noise is taken for granted"
        claimed = "" if target.claimed is None else f"claimed {target.claimed:.3g}, "
        proven = "nothing is proven" if target.proven == float("inf") else f"proven {target.proven:.3g}"
        console.print(f"[bold]{finding.law}[/bold]: {finding.pair}")
        console.print(f"  epsilon is at least [bold]{finding.epsilon:.3g}[/bold]{law} (delta {finding.delta:g}); {claimed}{proven}")
        console.print(f"  {finding.hits} hits and {finding.false_alarms} false alarms in {finding.trials} runs a side; {verdict.word}")
    first = verdicts[0].finding
    console.print(f"Confidence {first.confidence:.6g} for each bound, seed {first.seed}; thresholds were chosen on as many other runs.")


def _add(path: Path, document: dict[str, Any]) -> None:
    """One entry for each mechanism, epsilon, options and noise; a newer finding takes an older one's place."""
    import json

    kept = json.loads(path.read_text())["attacks"] if path.exists() else []
    identity = ("mechanism", "epsilon", "neighbours", "options", "noise_factor")
    kept = [one for one in kept if [one[key] for key in identity] != [document[key] for key in identity]]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"attacks": [*kept, document]}, indent=1, sort_keys=True) + "\n")
