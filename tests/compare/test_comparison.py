"""`airlock compare`: the table comes from results, and attacks find the runs that they belong to."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from airlock import cli
from airlock.compare import adlm_figures, comparison, figures, papers, published
from airlock.errors import InputError

RUN = {
    "dataset": "mnist",
    "mechanism": "adlm",
    "reading": "preset paper-literal",
    "options": {"preset": "paper-literal", "batch": 9},
    "neighbours": "zero-out",
    "passes": 14,
    "epsilon": 0.5,
    "claimed": 0.5,
    "proven_pure": "infinity",
    "proven": "infinity",
    "delta": 1e-5,
    "reason": "raw network",
    "accuracy": 0.5,
    "paper_accuracy": 0.9366,
    "records": 100,
    "epochs": 3,
    "seconds": 7,
}
CURVE = {"batch": {"1": 0.2, "10": 0.7}, "stored": {"1": 0.1, "10": 0.6}}
PROGRAM = {
    **RUN,
    "reading": "preset authors-code, 120 of each 1,800",
    "curves": CURVE,
    "accuracy": 0.7,
    "epochs": 10,
}
OTHER = {
    "dataset": "wdbc",
    "mechanism": "coefficients",
    "features": "tabular-2",
    "epsilon": 1.0,
    "proven_epsilon": 1.0,
    "accuracy_mean": 0.96,
}


def finding(mechanism: str, epsilon: float, bound: float, **more: object) -> dict[str, object]:
    return {
        "mechanism": mechanism,
        "epsilon": epsilon,
        "options": {},
        "findings": [{"kind": "attack", "epsilon": bound}, {"kind": "attack", "epsilon": 0.1}],
        **more,
    }


@pytest.fixture
def results(tmp_path: Path) -> Path:
    attacks = [
        finding("adlm", 0.5, 7.0, options={"preset": "paper-literal"}),
        finding("adlm", 0.5, 99.0, options={"preset": "authors-code"}),
        finding("adlm", 0.25, 98.0),
        finding("coefficients", 1.0, 0.9),
        finding("coefficients", 1.0, 2.0, noise_factor=0.5),
    ]
    (tmp_path / "adlm.json").write_text(json.dumps({"runs": [RUN]}))
    (tmp_path / "accuracy.json").write_text(json.dumps([OTHER]))
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": attacks}))
    (tmp_path / "noise.json").write_text(json.dumps([{"law": "laplace"}]))
    return tmp_path


def test_attacks_meet_the_runs_they_belong_to(results: Path) -> None:
    adlm, coefficients = comparison.load(results)
    assert (adlm.attacked, coefficients.attacked) == (7.0, 0.9)
    assert adlm.proven == math.inf
    assert (coefficients.accuracy, coefficients.proven) == (0.96, 1.0)


@pytest.mark.parametrize(
    ("claimed", "proven", "bounds"),
    [
        (0.5, 0.31, (0.1, None, 0.3)),  # the attack at 0.5 had less noise: the one with no less counts
        (0.5, 0.2, (None, None, None)),
        (None, 0.31, (None, None, None)),  # not a paper's: calibrated to what was asked
        (0.5, 0.499, (0.4, None, 0.5)),  # both calibrated to 0.5
        (0.5, "infinity", (0.4, None, 0.5)),
    ],
)
def test_an_attack_on_less_noise_is_none_on_more(
    claimed: float | None, proven: float | str, bounds: tuple[float | None, ...]
) -> None:
    attacks = [
        {
            "mechanism": "dp-mac",
            "epsilon": epsilon,
            "findings": [{"kind": "attack", "epsilon": bound, "reached": epsilon, "proven": epsilon}],
        }
        for epsilon, bound in ((0.5, 0.4), (0.3, 0.1))
    ]
    run = {"mechanism": "dp-mac", "epsilon": 0.5, "claimed": claimed, "proven": proven}
    assert comparison.attacked(run, attacks) == bounds


def test_no_bound_of_the_repository_stands_above_its_proof() -> None:
    rows = comparison.load(Path("bench/results"))
    finite = [row for row in rows if row.proven is not None and math.isfinite(row.proven) and row.reached]
    assert len(finite) > 20
    for row in rows:
        for bound in (row.attacked, row.attacked_by_law, row.reached, row.checked, row.checked_by_law):
            assert bound is None or row.proven is None or bound <= comparison.SAME_NOISE * row.proven, row


def test_an_autoencoder_has_an_error_in_place_of_an_accuracy(tmp_path: Path) -> None:
    run = {
        **RUN,
        "accuracy": None,
        "paper_accuracy": None,
        "mean_squared_error": 12.34,
        "paper_mean_squared_error": 12.0,
        "epochs": 0.5,
    }
    (tmp_path / "runs.json").write_text(json.dumps([run]))
    (row,) = comparison.load(tmp_path)
    assert (row.error, row.paper_error, row.accuracy) == (12.34, 12.0, None)
    assert "| - | - | 12.3 | 12 | 100 | 0.5 | 7 |" in papers.page([row], "papers")
    assert row.to_json()["error"] == 12.34


def test_page_has_every_row_and_every_reason(results: Path) -> None:
    page = papers.page(comparison.load(results), "papers")
    assert (
        "| mnist | adlm | preset paper-literal | zero-out | 14 | 0.5 | ∞ | ∞ | 1e-05 | ≥ 7 | - | 50.00 % | "
        "93.66 % | - | - | 100 | 3 | 7 |" in page
    )
    assert "raw network." in page
    assert "do not edit" in page


def test_command_filters_and_writes(results: Path, tmp_path: Path) -> None:
    if not cli.app.registered_commands:
        cli._register(["compare"])
    runner = CliRunner()
    shown = runner.invoke(cli.app, ["compare", "--results", str(results), "--dataset", "wdbc", "--json"])
    assert [row["mechanism"] for row in json.loads(shown.stdout)] == ["coefficients"]
    runner.invoke(
        cli.app, ["compare", "--results", str(results), "--markdown", str(tmp_path / "docs/papers.md")]
    )
    assert (tmp_path / "docs/papers.md").read_text().startswith("# The mechanisms")
    assert "adlm" in runner.invoke(cli.app, ["compare", "--results", str(results)]).stdout
    assert runner.invoke(cli.app, ["compare", "--results", str(results), "--dataset", "none"]).exit_code != 0


def test_rows_survive_json_and_say_what_is_made_up(tmp_path: Path) -> None:
    runs = [{**RUN, "simulated": True}, {**RUN, "dataset": "walks, simulated", "simulated": True}]
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    rows = comparison.load(tmp_path)
    assert [row.cells()[0] for row in rows] == ["mnist (simulated)", "walks, simulated"]
    assert [
        comparison.ComparisonRow.from_json(json.loads(json.dumps(row.to_json(), allow_nan=False)))
        for row in rows
    ] == rows


def test_bounds_by_the_law_stand_beside_the_free_ones(tmp_path: Path) -> None:
    found = {
        "mechanism": "coefficients",
        "epsilon": 1.0,
        "options": {},
        "findings": [{"kind": "attack", "epsilon": 0.7, "by_law": 0.95}],
    }
    (tmp_path / "runs.json").write_text(json.dumps([OTHER]))
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": [found]}))
    (row,) = comparison.load(tmp_path)
    assert "≥ 0.7; by law 0.95" in row.cells()


def test_pictures_have_the_same_bytes_each_time_and_a_place_for_infinity(
    results: Path, tmp_path: Path
) -> None:
    rows = [row for row in comparison.load(results) for _ in range(2)]
    for folder in ("first", "second"):
        papers.draw_all(rows, tmp_path / folder)
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
        for folder in ("first", "second")
    )
    assert first == second
    assert set(first) == {"headline.svg", "mnist.svg", "wdbc.svg"}
    assert b"nothing finite is proven" in first["mnist.svg"]


def test_headline_figures_stand_beside_ours_and_the_attack(tmp_path: Path) -> None:
    theirs = {**RUN, "records": 60_000, "accuracy": 0.9301, "options": {}}
    ours = {
        **OTHER,
        "dataset": "mnist",
        "mechanism": "coefficients-iterated",
        "features": "strokes-1",
        "epsilon": 0.5,
    }
    shorter, dearer = (
        {**theirs, "epochs": 1, "accuracy": 0.99},
        {**ours, "proven": 0.51, "accuracy_mean": 0.9},
    )
    runs = [shorter, theirs, dearer, {**ours, "proven": 0.5, "accuracy_mean": 0.9833}]
    attack = {
        "mechanism": "adlm",
        "epsilon": 0.5,
        "options": {},
        "findings": [{"kind": "attack", "epsilon": 7.0}],
    }
    (tmp_path / "runs.json").write_text(json.dumps(runs))
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": [attack]}))
    rows = comparison.load(tmp_path)
    text = papers.page(rows, "papers")
    line = next(line for line in text.splitlines() if line.startswith("| AdLM | mnist | 0.5 |"))
    # The longest run, though a shorter one came out better; within two points; ours only where it is proven.
    assert "| 93.66 % | **93.01 %**, 3 epochs | 7 | nothing finite | **98.33 %** | +4.7 | - | - |" in line
    assert "| AdLM | mnist | 0.25 | 90.20 % | not run | - | - | not run | - | - | - |" in text
    # A bound below the paper's figure is bold, one above it is not.
    assert "| 95.60 % | not run | - | - | not run | - | - | - |" in text
    kinds, rules = {("dermatology", 0.1): (0.989, 0.82)}, {("wdbc", 0.5): (0.99, 0.97)}
    told = papers.page(rows, "papers", ceilings=(kinds, rules))
    assert "| 95.60 % | not run | - | - | not run | - | 98.9 %; **82.0 %** | - |" in told
    assert "| 98.20 % | not run | - | - | not run | - | - | 99.0 %; **97.0 %** |" in told
    part = {**theirs, "reading": "preset authors-code, 120 of each 1,800", "epochs": 4}
    (tmp_path / "runs.json").write_text(json.dumps([*runs, part]))
    assert "**93.01 %**, 4 epochs, 120 of each 1,800 |" in papers.page(comparison.load(tmp_path), "papers")
    # Of two presets the more accurate one, each by its longest run; never by fewer records.
    for more, shown in (
        ({"accuracy": 0.95}, "**95.00 %**, 4 epochs"),
        ({"accuracy": 0.95, "epochs": 2}, "**95.00 %**, 2 epochs"),
        ({"accuracy": 0.92, "epochs": 50}, "**93.01 %**, 3 epochs"),
        ({"accuracy": 0.95, "records": 6000}, "**93.01 %**, 3 epochs"),
        # Not a program that its authors do not have.
        ({"accuracy": 0.95, "reading": "preset authors-code, pixels unit"}, "**93.01 %**, 3 epochs"),
        # Nor the paper's network under its program's noise.
        (
            {"accuracy": 0.95, "reading": "preset authors-code, label_noise coefficients"},
            "**93.01 %**, 3 epochs",
        ),
    ):
        (tmp_path / "runs.json").write_text(json.dumps([*runs, {**part, **more}]))
        assert f"93.66 % | {shown}" in papers.page(comparison.load(tmp_path), "papers")
    papers.draw_all(rows, tmp_path)
    drawn = (tmp_path / "headline.svg").read_text()
    assert "attacked ≥ 7, nothing proven" in drawn
    assert "most that privacy allows" not in drawn
    papers.draw_all(rows, tmp_path, ceilings=(kinds, rules))
    assert "most that privacy allows" in (tmp_path / "headline.svg").read_text()


def test_on_other_data_than_the_papers_ours_is_compared_with_its_mechanism_there(tmp_path: Path) -> None:
    weekly = {"dataset": "behaviour-weekly-simulated", "neighbours": "zero-out", "epsilon": 2.0}
    theirs = {
        **weekly,
        "mechanism": "behaviour-published",
        "claimed": 2.0,
        "proven": "infinity",
        "accuracy_mean": 0.7,
    }
    reading = "window, per record, 38 time points"
    ours = {**weekly, "mechanism": "behaviour", "reading": reading, "proven": 2.0, "accuracy_mean": 0.91}
    (tmp_path / "runs.json").write_text(json.dumps([theirs, ours]))
    text = papers.page(comparison.load(tmp_path), "papers")
    # Never bold for being near, or above, a figure of other data.
    told = "| 2 | 92.00 % (YesiWell) | 70.00 % | - | nothing finite | **91.00 %** | +21.0 | - | - |"
    assert f"| pCDBN | behaviour-weekly-simulated {told}" in text
    (tmp_path / "runs.json").write_text(json.dumps([ours]))
    text = papers.page(comparison.load(tmp_path), "papers")
    assert "| 2 | 92.00 % (YesiWell) | not run | - | - | 91.00 % | - | - | - |" in text


def test_the_papers_figures_are_drawn_with_ours_over_theirs(tmp_path: Path) -> None:
    keyed = {**RUN, "mechanism": "pcdbn", "reading": "authors-code", "curves": {"2": CURVE, "10": {}}}
    ours = {**OTHER, "dataset": "mnist", "mechanism": "coefficients-iterated", "features": "strokes-1"}
    results = tmp_path / "results"
    results.mkdir()
    (results / "runs.json").write_text(json.dumps([PROGRAM, keyed, {**ours, "epsilon": 0.5, "proven": 0.5}]))
    rows, curves = comparison.load(results), figures.load_curves(results)
    assert [(one.mechanism, one.stored) for one in curves] == [
        ("adlm", False),
        ("adlm", True),
        ("pcdbn", False),
        ("pcdbn", True),
    ]
    assert curves[1].points == ((1, 0.1), (10, 0.6))
    for folder in ("first", "second"):
        papers.draw_all(rows, tmp_path / folder, curves)
    for name, words in (
        ("epochs.svg", ("claimed 0.5, 120 of each 1,800", "claimed 0.5, whole batches", "paper, 0.5")),
        ("epsilons.svg", ("AdLM", "pCDBN", "ours, proven")),
    ):
        text = (tmp_path / "first" / name).read_text()
        assert all(word in text for word in words)
        assert text == (tmp_path / "second" / name).read_text()
    assert "papers/epochs.svg" in papers.page(rows, "papers", curves)
    # Nothing to draw, nothing said of it.
    assert "epochs.svg" not in papers.page(rows, "papers")


def test_no_mark_hides_another_and_no_legend_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, Any] = {}
    monkeypatch.setattr(papers, "keep", lambda figure, target: found.update({target.name: figure}))
    ours = {**OTHER, "dataset": "mnist", "mechanism": "coefficients-iterated", "features": "strokes-1"}
    less = {**PROGRAM, "epsilon": 0.25, "claimed": 0.25}
    (tmp_path / "runs.json").write_text(json.dumps([PROGRAM, less, {**ours, "epsilon": 0.5, "proven": 0.5}]))
    papers.draw_all(comparison.load(tmp_path), tmp_path, figures.load_curves(tmp_path))
    for name in ("headline.svg", "epochs.svg", "adlm-figures.svg"):
        found[name].canvas.draw()
        for panel in found[name].axes:
            if legend := panel.get_legend():
                assert legend.get_window_extent().y1 < panel.get_window_extent().y0, name
    # What is filled is below.
    for name in ("headline.svg", "epsilons.svg"):
        (first, *_) = found[name].axes
        drawn = [line for line in first.lines if len(line.get_xdata())]
        heights = {line.get_marker(): line.get_zorder() for line in drawn}
        assert heights["D"] < min(heights["x"], heights["o"]), name
    # A cross has the colour of the curve at its epsilon.
    (panel,) = found["epochs.svg"].axes
    colours = {line.get_label(): line.get_color() for line in panel.lines}
    for claimed in ("0.25", "0.5"):
        assert colours[f"paper, {claimed}"] == colours[f"claimed {claimed}, 120 of each 1,800"]
    assert colours["paper, 0.25"] != colours["paper, 0.5"]


def test_adlms_figures_are_drawn_as_far_as_they_were_run(tmp_path: Path) -> None:
    fresh = {**PROGRAM, "reading": f"{PROGRAM['reading']}, {comparison.FRESH}", "accuracy": 0.8, "epochs": 11}
    colour = {**PROGRAM, "dataset": "cifar10-jpeg", "epsilon": 2.5, "claimed": 2.5}
    attack = {"mechanism": "adlm", "epsilon": 0.5, "findings": [{"kind": "attack", "epsilon": 7.0}]}
    (tmp_path / "runs.json").write_text(json.dumps([PROGRAM, fresh, colour]))
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": [attack]}))
    rows, curves = comparison.load(tmp_path), figures.load_curves(tmp_path)
    assert [panel.figure for panel in adlm_figures.shown(curves)] == ["Fig. 4b: MNIST", "Fig. 5b: CIFAR-10"]
    papers.draw_all(rows, tmp_path / "papers", curves)
    drawn = (tmp_path / "papers/adlm-figures.svg").read_text()
    words = ("adlm, 120 of each 1,800, every step", "paper: ilm", "mean over epsilons", "Fig. 5b")
    assert all(word in drawn for word in words)
    assert "Fig. 4c" not in drawn
    text = papers.page(rows, "papers", curves)
    assert "papers/adlm-figures.svg" in text
    # An attack on a release is none on a training from raw records, which is no headline's row either.
    assert {row.reading: row.attacked for row in rows if row.dataset == "mnist"} == {
        PROGRAM["reading"]: 7.0,
        fresh["reading"]: None,
    }
    assert "| 93.66 % | 70.00 %, 10 epochs, 120 of each 1,800 | 7 |" in text


def test_degrees_are_drawn_where_some_were_run(tmp_path: Path) -> None:
    reading = "authors-code, {}, 32 and 64 maps"
    curves = [
        figures.Curve("pcdbn", 0.5, reading.format(name), False, ((10, 0.3), (2400, accuracy)))
        for name, accuracy in (("chebyshev-1", 0.9), ("chebyshev-3", 0.8), ("published-7", 0.7))
    ]
    figures.draw_degrees(curves[2:], tmp_path / "none.svg")
    assert not (tmp_path / "none.svg").exists()
    for name in ("first.svg", "second.svg"):
        figures.draw_degrees(curves, tmp_path / name)
    text = (tmp_path / "first.svg").read_text()
    assert all(word in text for word in ("after 2,400 epochs", "degree L", "paper, 2,400 epochs"))
    assert text == (tmp_path / "second.svg").read_text()


def test_no_results_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"bench\.papers\.ablation"):
        comparison.load(tmp_path)
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        comparison.load(tmp_path)


def test_the_page_in_docs_is_what_the_results_say() -> None:
    """Nobody edits it by hand: its rows are those of some results, and every adlm run is in it."""
    root = Path(__file__).parents[2]
    page, results = root / "docs/papers.md", root / "bench/results"
    if not page.exists():
        pytest.skip("no page yet")
    rows = [row for row in comparison.load(results) if row.mechanism in ("adlm", "ilm", "dp-sgd", "none")]
    text = page.read_text()
    assert all("| " + " | ".join(row.cells()) + " |" in text for row in rows)
    pictures = re.findall(r"\]\((papers/.+?\.svg)\)", text)
    assert pictures and all((page.parent / picture).exists() for picture in pictures)


def test_rows_and_attacks_survive_csv(results: Path, tmp_path: Path) -> None:
    """What the report stage reads is what the comparison has, infinity and nothing included."""
    rows, attacks = comparison.load(results), comparison.load_attacks(results)
    published.write(tmp_path / "published.csv", rows, attacks)
    again = published.read(tmp_path / "published.csv", tmp_path / "attacks.csv")
    assert list(again.rows) == rows
    for row in rows:
        run = {"mechanism": row.mechanism, "epsilon": row.epsilon, "options": {"preset": "paper-literal"}}
        assert comparison.attacked(run, again.attacks) == comparison.attacked(run, attacks)
    assert published.read(None, None) == published.PublishedTables()
    (tmp_path / "published.csv").write_text("not,these\n1,2\n")
    with pytest.raises(InputError, match="airlock compare --save"):
        published.read(tmp_path / "published.csv", None)


def test_an_accounting_check_is_no_attack(tmp_path: Path) -> None:
    """Findings saved before there were kinds are told apart by their law's name."""
    about = {"mechanism": "coefficients", "epsilon": 1.0, "options": {}}
    old = {**about, "findings": [{"law": "all noisy sums", "epsilon": 0.8, "by_law": 0.98}]}
    new = {
        **about,
        "findings": [{"kind": "attack", "law": "the release itself", "epsilon": 0.2, "by_law": 0.7}],
    }
    (tmp_path / "runs.json").write_text(json.dumps([OTHER]))
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": [old]}))
    (row,) = comparison.load(tmp_path)
    assert (row.attacked, row.checked, row.checked_by_law) == (None, 0.8, 0.98)
    (tmp_path / "attacks.json").write_text(json.dumps({"attacks": [old, new]}))
    (row,) = comparison.load(tmp_path)
    assert (row.attacked, row.attacked_by_law, row.checked) == (0.2, 0.7, 0.8)


def test_the_published_comparison_is_what_the_results_say() -> None:
    root = Path(__file__).parents[2]
    folder = root / "stages/open/report"
    found = published.read(folder / "published.csv", folder / "attacks.csv")
    assert list(found.rows) == comparison.load(root / "bench/results"), "run `airlock compare --save` again"


def test_a_row_on_cifar10_beside_a_papers_figure_is_called_no_reproduction() -> None:
    rows = [
        row
        for row in comparison.load(Path(__file__).parents[2] / "bench/results")
        if row.dataset.startswith("cifar10")
    ]
    beside = [row for row in rows if row.paper_accuracy is not None]
    assert beside and all("not a reproduction" in row.reading for row in beside)
    assert any(row.paper_accuracy is None and "not a reproduction" not in row.reading for row in rows)
