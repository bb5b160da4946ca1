"""The report page is true to its inputs, whatever is missing, and safe to open."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from airlock.commands.report import _lines
from airlock.compare import published
from airlock.compare.comparison import ComparisonRow
from airlock.errors import ReleaseError
from airlock.inside import manifest
from airlock.models.explained import Explanation
from airlock.privacy.guarantees import Guarantee
from airlock.privacy.plan import Plan
from stages.open import explanation
from stages.open.report import report, sections
from tests.support.report_inputs import (
    AUDIT,
    BUDGET,
    DEPS,
    EVALUATE,
    FACTS,
    PROJECT,
    PROVEN,
    Inputs,
    fill,
    told,
)


@pytest.fixture
def bare(tmp_path: Path) -> Inputs:
    return Inputs(tmp_path)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    return fill(tmp_path)


class Outline(HTMLParser):
    """What a screen reader would walk over."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attributes)))

    def every(self, attribute: str) -> list[str]:
        return [str(found[attribute]) for _, found in self.tags if attribute in found]


def words(page: str) -> str:
    """The page as read aloud: no tags, single spaces."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.split("</style>", 1)[1]).split())


def test_the_same_inputs_give_the_same_bytes(inputs: Inputs) -> None:
    assert inputs.page() == inputs.page()


def test_the_page_says_what_the_stages_found(inputs: Inputs) -> None:
    text = words(inputs.page())
    for fact in (
        "95.6 %",
        "97.4 %",
        "90.1 % to 98.1 %",
        "exact Gaussian",
        "the paper",
        "L2 1.0 per query",
        "zero-out",
        "1.7 spent",
        "6.3 left of 8",
    ):
        assert fact in text
    assert (
        "4 of 7 stages could read records ( ingest, relevance, release, evaluate-private )"
        in text.replace("(ingest", "( ingest").replace("private)", "private )")
    )
    assert "holdout, reference. No privacy is claimed for them" in text


def test_a_page_without_any_input_is_still_a_page(bare: Inputs) -> None:
    text = words(bare.page(facts={}))
    for sentence in (
        "was not measured",
        "No release was found",
        "The ledger was not at hand",
        "No audit is attached",
        "Nothing was released first",
        "There is no curve",
    ):
        assert sentence in text


def explained(inputs: Inputs, grid: tuple[int, int] | None) -> None:
    """What train leaves beside its model: the first input matters most and carries least noise."""
    size = np.linspace(1, 0.1, 6)
    parts = np.column_stack([size, -size])
    names = tuple("abcdef") if grid is None else tuple(f"{index}" for index in range(6))
    found = Explanation(
        names, grid, ("benign", "malignant"), parts, parts - 0.2, parts + 0.2, np.sign(parts), 1 / size
    )
    explanation.write(found, inputs.root / "data/model" / explanation.FILE)


def test_the_page_shows_what_inputs_contribute_and_the_noise_that_they_carry(inputs: Inputs) -> None:
    explained(inputs, None)
    page = inputs.page()
    text = words(page)
    assert "carries less noise, in units of its own spread, than the other half" in text
    assert "For “benign”: what its own records owe to each input." in text
    assert page.count("chart-interval") > 10
    assert ">a ↑<" in page and ">a ↓<" in page
    (inputs.root / "data/model" / explanation.FILE).unlink()
    explained(inputs, (2, 3))
    assert "2 by 3 values from 0.1 to 1." in inputs.page()


def test_the_page_says_only_what_is_true_of_the_mechanism_that_ran(inputs: Inputs) -> None:
    assert "The training code never had the records" in words(inputs.page())
    inputs.release("release", mechanism="dp-sgd", passes=285, interactive=True)
    inputs.write("data/plots/learning_curve.csv", "epoch,loss\n")
    inputs.write("data/metrics/train.json", {"epochs": 0})
    inputs.write(
        "data/model/model.json", {"kind": "tabular", "features": "x", "layers": [], "labels": ["a", "b"]}
    )
    text = words(inputs.page())
    for false in ("never had the records. It", "solved for in one step", "0 layers", "No paper is quoted"):
        assert false not in text
    assert "given 286 times, and some of what was asked depended on a model that was being trained" in text
    assert "the release holds the trained model, tells of fewer than two points on the way to it" in text
    assert "a network on features" in text


def test_a_model_that_was_trained_inside_its_release_is_not_said_to_be_tuned_for_nothing(
    inputs: Inputs,
) -> None:
    assert "Training, tuning and predicting cost nothing." in words(inputs.page())
    curve = {"points": [[0, 0.0], [9, -1.0]], "noise": 0.2}
    for details in ({"curve": curve}, {"losses": [0.9, 0.5]}):
        inputs.release("release", mechanism="dp-sgd", passes=9, interactive=True, details=details)
        text = words(inputs.page())
        assert "cost nothing" not in text
        assert "training it again, or otherwise, is another release" in text


def test_a_release_of_one_step_is_not_called_solved_for(inputs: Inputs) -> None:
    curve = {"points": [[1, -1.0]], "noise": 0.2}
    inputs.release("release", mechanism="dp-sgd", passes=1, interactive=True, details={"curve": curve})
    inputs.write("data/plots/learning_curve.csv", "epoch,loss\n1,-1.0\n")
    text = words(inputs.page())
    assert "solved for in one step" not in text and "fewer than two points" in text


def test_an_autoencoder_has_an_error_and_neither_accuracy_nor_classes(inputs: Inputs) -> None:
    error = {"accuracy": None, "holdout": "public", "mean_squared_error": 2.5, "records": 114}
    inputs.write("data/metrics/evaluate.json", {**error, "reference_accuracy": 0.97})
    text = words(inputs.page())
    for false in (
        "holdout was used",
        "for the classes",
        "airlock evaluate",
        "97.0 %",
        "not measured, because",
    ):
        assert false not in text
    assert "is 2.5 on average" in text and "an autoencoder" in text
    summary = json.loads((inputs.root / "data/report/summary.json").read_text())
    assert _lines(summary)[0] == "Error     2.5, squared and summed over a record, on 114 public records"


@pytest.mark.parametrize(("asked", "said"), [(2.0, False), (0.5, True)])
def test_a_total_beyond_what_was_asked_for_is_said_so(inputs: Inputs, asked: float, said: bool) -> None:
    text = words(inputs.page(release={"epsilon": asked}))
    assert ("more than release.epsilon asked for" in text) is said
    summary = json.loads((inputs.root / "data/report/summary.json").read_text())
    assert ("release.epsilon asked for 0.5" in "\n".join(_lines(summary))) is said


def test_no_pass_is_called_independent_of_what_was_learned_from_earlier_ones(inputs: Inputs) -> None:
    """A mechanism with layers asks its later sums through layers that its earlier ones taught."""
    text = words(inputs.page())
    assert "as many as were fixed beforehand; a later one may look through what earlier ones released" in text
    shutil.rmtree(inputs.root / "data/released/relevance")
    inputs.release("release")
    assert "fixed beforehand; a later one" not in words(inputs.page())


def test_a_network_on_the_inputs_themselves_names_no_features(inputs: Inputs) -> None:
    model = {"kind": "image", "features": "", "layers": [], "labels": ["a", "b"]}
    inputs.write("data/model/model.json", model)
    text = words(inputs.page())
    assert "a network on the inputs themselves, for the classes a, b" in text and "“”" not in text


def test_a_head_on_released_neurons_is_not_called_linear_on_the_features(inputs: Inputs) -> None:
    assert "a linear one on features “linear”" in words(inputs.page())
    file = inputs.root / "data/model/model.safetensors"
    save_file({"neurons": np.zeros((30, 16), np.int64)}, file)
    assert "a linear one on 16 released neurons above the features “linear”" in words(inputs.page())


def test_the_page_says_whose_word_it_is_that_an_encoder_has_seen_no_record(inputs: Inputs) -> None:
    model = {"kind": "image", "features": "onnx:scan.onnx", "layers": [[6, 2]], "labels": ["a", "b"]}
    inputs.write("data/model/model.json", model)
    assert "is the word of" not in words(inputs.page())
    word = {"sha256": "0" * 64, "width": 6, "seen": "drawings", "vouched_by": "M. Weber"}
    inputs.write("data/model/model.json", {**model, "schema": {"encoder": word}})
    assert "only “drawings”, is the word of M. Weber; nothing here has checked it" in words(inputs.page())


@pytest.mark.parametrize("path", [f"data/{dep}" for dep in DEPS] + list(PROJECT))
def test_any_one_input_may_be_missing(inputs: Inputs, path: str) -> None:
    gone = inputs.root / path
    shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    assert "</html>" in inputs.page()


def test_without_a_holdout_no_accuracy_is_shown(inputs: Inputs) -> None:
    inputs.write(
        "data/metrics/evaluate.json",
        {"holdout": "none", "reason": "private", "accuracy": None, "reference_accuracy": None},
    )
    text = words(inputs.page())
    assert "accuracy was not measured" in text
    assert "Confusion matrix" not in text


@pytest.mark.parametrize("number", [1, 3])
def test_nights_without_a_public_holdout_are_shown_without_accuracy(inputs: Inputs, number: int) -> None:
    """As nights of private records are unless a public file is added: no night has a figure to draw."""
    night = {"records": 300, "weight": 1, "scale": 50.0, "values": [10, 20, 150], "epsilon": 1.0}
    rows = [{**night, "night": place, "total": 300 * place} for place in range(1, number + 1)]
    known = {"rows": rows, "names": ["a", "b", "ill"], "columns": 2, "nights": 8}
    text = words(inputs.page({**told(), "nights": known}))
    assert f"{number} of 8 nights, for one price" in text and "not measured" in text
    assert "Accuracy of every night" not in text


def test_a_private_evaluation_is_called_noisy_and_has_no_interval(inputs: Inputs) -> None:
    inputs.write(
        "data/metrics/evaluate.json",
        EVALUATE | {"holdout": "private", "reference_accuracy": None, "confusion": None},
    )
    text = words(inputs.page())
    assert "carries noise of its own" in text
    assert "would itself be a leak" in text
    assert "confidence interval" not in text


def test_an_infinite_epsilon_is_shown_with_its_reason(inputs: Inputs) -> None:
    endless = Guarantee("proven", "record", "zero-out", math.inf, 0.0, reason="noise is shared by a batch")
    inputs.release("release", proven=endless, claimed=replace(PROVEN, kind="claimed"), public_only=True)
    text = words(inputs.page())
    assert "Nothing finite is proven about this release: noise is shared by a batch" in text
    assert "∞" in text
    assert "not proven to hide them. The records are public" in text
    inputs.release("release", proven=endless, passes=2420, interactive=True, public_only=True)
    text = words(inputs.page())
    assert "not proven to hide them: the code that learned read them, as published" in text
    # Of records that are read as they are, in each step, nothing of the kind is true.
    assert "noise was added before" not in text and "noisy answers were given" not in text


@pytest.mark.parametrize(
    ("confusion", "right", "said"),
    [
        ([[39, 3], [2, 70]], 109, False),
        ([[0, 42], [0, 72]], 72, True),  # the commonest class, always
        ([[10, 32], [40, 32]], 42, True),  # below it
        ([[1, 41], [0, 72]], 73, False),
    ],
)
def test_a_result_at_or_below_the_commonest_class_is_said_so(
    inputs: Inputs, confusion: list[list[int]], right: int, said: bool
) -> None:
    found = EVALUATE | {"accuracy": right / 114, "confusion": confusion}
    inputs.write("data/metrics/evaluate.json", found)
    assert (
        "no better than answering the commonest class every time (63.2 %)" in words(inputs.page())
    ) is said
    summary = json.loads((inputs.root / "data/report/summary.json").read_text())
    assert ("no better than always the commonest class (63.2%)" in "\n".join(_lines(summary))) is said


def test_an_attack_is_shown_as_a_lower_bound(inputs: Inputs) -> None:
    found = replace(PROVEN, kind="attacked", epsilon=0.42, confidence=0.95, argument="likelihood ratio")
    inputs.write("data/metrics/attack.json", {"attacked": {"release": found.to_json()}})
    room = inputs.room()
    paths = {**room.paths, "data/metrics/attack.json": inputs.root / "data/metrics/attack.json"}
    report.main(replace(room, paths=paths))
    text = words((inputs.root / "data/report/report.html").read_text())
    assert "at least 0.42" in text
    assert "confidence 95.0 %" in text


def test_an_attack_on_a_whole_mechanism_is_not_held_against_half_of_it(inputs: Inputs) -> None:
    half = replace(PROVEN, epsilon=0.97)
    inputs.release("release", proven=half)
    assert "both of its releases together, at their total epsilon" in words(inputs.page())
    shutil.rmtree(inputs.root / "data/released/relevance")
    inputs.release("release")
    text = words(inputs.page())
    assert "a published attack on the same mechanism at the same epsilon" in text
    assert "both of its releases" not in text


def test_a_bound_that_takes_the_noise_for_granted_says_so(inputs: Inputs) -> None:
    attacks = inputs.root / "stages/open/report/attacks.csv"
    header = attacks.read_text().splitlines()[0]
    shutil.rmtree(inputs.root / "data/released/relevance")
    cases = (
        (
            "0.18,0.8,1.0,1.0",
            "at least 0.18",
            "0.8 if the form of the noise is taken for granted; 1 if form and size",
        ),
        (
            "0.0,0.0,1.0,1.0",
            "at least 0 ",
            "on made-up records; 1 if form and size of the noise are taken for granted",
        ),
    )
    for bounds, least, more in cases:
        attacks.write_text(
            f"{header}\nattack,coefficients,1.0,zero-out,record,{{}},1.0,noise,{bounds},0.95\n"
        )
        inputs.release("release")
        text = words(inputs.page())
        assert least in text and more in text


def test_an_attack_with_a_preset_counts_where_the_preset_was_not_named(inputs: Inputs) -> None:
    """`sound` is what `adlm` takes if nobody says; a plan's parameters have every option settled."""
    proven = replace(PROVEN, epsilon=0.75)
    plan = Plan("adlm", 1, {"preset": "sound"}, 1, proven)
    folder = inputs.root / "data/released/release"
    manifest.write(folder, plan=plan, facts=FACTS, release_id="a" * 64)
    text = words(inputs.page())
    assert "No attack on this mechanism" not in text.split("mechanism adlm")[1].split("Release id")[0]
    manifest.write(
        folder, plan=replace(plan, parameters={"preset": "other"}), facts=FACTS, release_id="a" * 64
    )
    text = words(inputs.page())
    assert "No attack on this mechanism" in text.split("mechanism adlm")[1].split("Release id")[0]


def test_an_infinite_epsilon_is_summed_up_as_no_proof_beside_what_is_claimed(inputs: Inputs) -> None:
    endless = replace(PROVEN, epsilon=math.inf, delta=0.0, event=None, reason="nobody knows")
    inputs.release("release", proven=endless, claimed=replace(PROVEN, kind="claimed"), passes=3)
    inputs.page()
    summary = json.loads((inputs.root / "data/report/summary.json").read_text())
    assert (summary["epsilon"], summary["claimed"], summary["interactive"]) == ("infinity", [1.0], False)
    assert "Privacy   nothing finite is proven (epsilon 1 is claimed), 4 passes over the records" in _lines(
        summary
    )


def test_measures_beside_accuracy_are_shown_where_there_are_any(inputs: Inputs) -> None:
    assert "Brier score" not in words(inputs.page())
    inputs.write("data/metrics/evaluate.json", {**EVALUATE, "brier": 0.0981, "auc": 0.978})
    text = words(inputs.page())
    assert re.search(r"Brier score[^0-9]+0 \(best\) to 2 0\.0981", text)
    assert "0.978" in text


def test_releases_together_are_composed_not_added(inputs: Inputs) -> None:
    from airlock.privacy import gaussian

    made = {name: manifest.load(inputs.root / "data/released" / name) for name in ("relevance", "release")}
    total = sections.total(made, 1e-5)
    assert total is not None
    assert total["epsilon"] == pytest.approx(gaussian.epsilon_at(math.sqrt(2) / 3.73, 1e-5))
    assert sections.total({"release": made["release"]}, 0.1) == {
        **total,
        "epsilon": 1.0,
        "delta": 1e-5,
        "guess": pytest.approx(0.73106, abs=1e-4),
    }


def test_a_release_that_was_changed_is_refused(inputs: Inputs) -> None:
    (inputs.root / "data/released/release/more.csv").write_text("1")
    with pytest.raises(ReleaseError, match=r"more\.csv"):
        inputs.page()


def test_an_open_stage_that_could_read_records_is_an_alarm(inputs: Inputs) -> None:
    rows = [{**row, "could_read_sealed": True} if row["name"] == "train" else row for row in AUDIT]
    assert "The boundary does not hold: train could read records" in words(inputs.page({"audit": rows}))


def test_the_page_calls_its_own_stage_running(inputs: Inputs) -> None:
    assert "did read: running" in inputs.page()


def test_everything_from_outside_is_escaped(inputs: Inputs) -> None:
    evil = "<script>alert(1)</script>\"'"
    inputs.write(
        "data/model/model.json", {"labels": [evil, evil], "features": evil, "layers": [[1, 2], [2, 2]]}
    )
    inputs.relevance(np.ones(2), columns=[evil, evil])
    inputs.release(
        "release",
        mechanism=evil,
        proven=replace(PROVEN, argument=evil, sensitivity=evil),
        claimed=replace(PROVEN, argument=evil),
    )
    rows = [{**row, "name": evil, "zone": evil, "enforcement": evil} for row in AUDIT]
    page = inputs.page(
        {"audit": rows, "budget": BUDGET | {"population": evil}},
        release={"mechanism": evil, "options": {evil: evil}},
    )
    assert "<script" not in page
    assert page.count("alert(1)") > 10


def test_the_page_refers_to_nothing_outside_itself(inputs: Inputs) -> None:
    page = inputs.page(relevance={"mode": "statistics"}, train={"method": "sgd"})
    outline = Outline(page)
    ids = outline.every("id")
    assert len(ids) == len(set(ids))
    assert {link.removeprefix("#") for link in outline.every("href") if link != "data:,"} <= set(ids)
    assert not outline.every("src")
    assert not [tag for tag, _ in outline.tags if tag in ("script", "iframe", "object", "img")]
    assert not re.search(r"url\(|@import|https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_page_allows_no_script_and_no_style_but_its_own(inputs: Inputs) -> None:
    page = inputs.page()
    outline = Outline(page)
    assert not outline.every("style")
    assert not [name for _, found in outline.tags for name in found if name.startswith("on")]
    (policy,) = [found["content"] for _, found in outline.tags if "http-equiv" in found]
    styles = re.findall("<style>(.*?)</style>", page, re.DOTALL)
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in styles]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    assert len(styles) == 2
    assert (
        policy
        == f"default-src 'none'; style-src {allowed}; img-src data:; base-uri 'none'; form-action 'none'"
    )


def test_headings_pictures_and_tables_are_named_for_screen_readers(inputs: Inputs) -> None:
    outline = Outline(inputs.page())
    levels = [int(tag[1]) for tag, _ in outline.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert all(found.get("aria-label") for _, found in outline.tags if found.get("role") == "img")
    assert all(
        found.get("aria-label") or found.get("aria-labelledby")
        for _, found in outline.tags
        if found.get("role") == "region"
    )
    assert all("scope" in found for tag, found in outline.tags if tag == "th")


def test_columns_are_shown_as_bars_largest_first_whatever_their_sign(inputs: Inputs) -> None:
    inputs.relevance(np.array([0.5, -2.0, 1.0]), columns=["low", "below", "high"])
    page = inputs.page(relevance={"mode": "statistics"})
    assert page.index("below: -2") < page.index("high: 1") < page.index("low: 0.5")


def test_pixels_are_shown_as_a_heat_map(inputs: Inputs) -> None:
    inputs.relevance(np.ones((4, 5, 3)))
    assert "4 by 5 values from 3 to 3." in inputs.page(relevance={"mode": "lrp"})


def test_files_are_listed_with_their_hashes(inputs: Inputs) -> None:
    page = inputs.page()
    for path in ("data/metrics/evaluate.json", "data/released/release/release.json", "data/model/model.json"):
        assert path in page
        assert hashlib.sha256((inputs.root / path).read_bytes()).hexdigest() in page


def test_parameters_that_differ_from_the_default_stand_out(inputs: Inputs) -> None:
    page = inputs.page(release={"epsilon": 0.25})
    assert "<strong>0.25</strong>" in page
    assert "<strong>1e-5</strong>" not in page


def test_the_confidence_interval_is_wilson_s() -> None:
    from scipy.stats import binomtest

    low, high = sections.wilson(109 / 114, 114)
    expected = binomtest(109, 114).proportion_ci(method="wilson")
    assert (low, high) == pytest.approx((expected.low, expected.high))


def publish(inputs: Inputs, rows: list[dict[str, Any]], attacks: list[dict[str, Any]]) -> None:
    """What `airlock compare --save` would have written."""
    path = inputs.root / "stages/open/report/published.csv"
    path.parent.mkdir(parents=True, exist_ok=True)
    published.write(path, [ComparisonRow.from_json(row) for row in rows], attacks)


@pytest.mark.parametrize("kind", ["attack", "accounting check", None])
def test_the_page_never_says_that_nothing_was_measured_beside_a_figure(
    inputs: Inputs, kind: str | None
) -> None:
    finding = {"kind": kind, "epsilon": 0.7, "by_law": 0.9}
    attack = {
        "mechanism": "coefficients",
        "epsilon": 1.0,
        "options": {},
        "findings": [finding] if kind else [],
    }
    publish(inputs, [], [attack])
    text = words(inputs.page(dataset="wdbc"))
    assert ("attacked at least 0.7" in text) == (kind == "attack")
    assert ("accounting check at least 0.7" in text) == (kind == "accounting check")
    assert ("0.9 if the form of the noise is taken for granted" in text) == (kind is not None)
    told = [
        text.count(words)
        for words in (
            "No attack on this mechanism with these options at this epsilon is known here",
            "attacked at least",
            "Release “",
        )
    ]
    assert told[0] + told[1] == told[2], "one of the two for each release, never both"
    assert "No attack was run" not in text


def test_the_run_is_a_row_of_the_comparison_above_the_published_ones(inputs: Inputs) -> None:
    row = {
        "dataset": "wdbc",
        "mechanism": "coefficients",
        "epsilon": 1.0,
        "accuracy": 0.9,
        "paper_accuracy": 0.5,
        "proven": "infinity",
    }
    attack = {
        "mechanism": "coefficients",
        "epsilon": 1.0,
        "options": {},
        "findings": [
            {"kind": "attack", "epsilon": 0.7, "by_law": 0.9},
            {"kind": "accounting check", "epsilon": 0.8, "by_law": 0.95},
        ],
    }
    publish(inputs, [row, {**row, "dataset": "mnist"}], [attack])
    text = words(inputs.page(dataset="wdbc"))
    assert (
        "wdbc coefficients this run zero-out 4 1 ∞ 1.47 1e-05 ≥ 0.7; "
        "by law 0.9 ≥ 0.8; by law 0.95 95.61 % 50.00 %" in text
    )
    assert "wdbc coefficients - - - - ∞ - - - 90.00 % 50.00 %" in text
    assert "mnist coefficients" not in text


def test_without_benchmarks_the_run_stands_alone(inputs: Inputs) -> None:
    publish(inputs, [], [])
    text = words(inputs.page(dataset="wdbc"))
    assert "No benchmark on wdbc came with this program" in text
    assert "wdbc coefficients this run" in text


def test_the_page_says_whether_relevance_helped_on_the_same_budget(inputs: Inputs) -> None:
    ways = {"off": 0.956, "statistics identical": 0.955, "lrp adaptive": 0.953}
    rows = [
        {"dataset": "wdbc", "mechanism": f"coefficients, relevance {way}", "epsilon": 1.0, "accuracy": found}
        for way, found in ways.items()
    ]
    publish(inputs, [*rows, {**rows[0], "dataset": "mnist", "accuracy": 0.97}], [])
    text = words(inputs.page(dataset="wdbc"))
    assert "wdbc 1 off 95.60 % wdbc 1 statistics identical 95.50 % wdbc 1 lrp adaptive 95.30 %" in text
    assert "mnist 1 off 97.00 %" not in text
    assert "mnist 1 off 97.00 %" in words(inputs.page(dataset="clinic"))


def test_without_an_ablation_there_is_no_table_of_it(inputs: Inputs) -> None:
    publish(inputs, [], [])
    assert "Does relevance help?" not in inputs.page(dataset="wdbc")
