"""`airlock budget` on a workspace with one private and one public population.

Nothing here reads a record: there is none.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from airlock.commands.budget import app
from airlock.errors import BudgetRefused, InputError, LedgerError, ParamsError
from airlock.evidence import receipts
from airlock.evidence.zones import Stage
from airlock.ledger import Ledger
from airlock.owner.home import Project, project
from airlock.owner.keys import Keyring, signer
from airlock.params import load_params
from airlock.privacy import calibration
from airlock.records import handles
from airlock.records.handles import Handle
from airlock.records.schema_file import load_schema
from airlock.run import budget
from airlock.run.budget import override

ROOT = Path(__file__).parents[2]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """'clinic' is private with a cap of 3, 'wdbc' is public; params.yaml names the clinic.

    The working folder is the workspace.
    """
    workspace = tmp_path / "work"
    (workspace / "data" / "schemas").mkdir(parents=True)
    for name in ("dvc.yaml", "params.yaml", "data/project.json", "data/schemas/wdbc.yaml"):
        shutil.copy(ROOT / name, workspace / name)
    shutil.copytree(ROOT / "stages", workspace / "stages", ignore=shutil.ignore_patterns("__pycache__"))
    private = (
        (workspace / "data/schemas/wdbc.yaml")
        .read_text()
        .replace("name: wdbc", "name: clinic")
        .replace("public: true", "public: false")
    )
    (workspace / "data/schemas/clinic.yaml").write_text(private)
    params = (workspace / "params.yaml").read_text()
    asked = params.replace("dataset: wdbc", "dataset: clinic").replace(
        "mechanism: auto", "mechanism: coefficients"
    )
    (workspace / "params.yaml").write_text(asked)
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("AIRLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("AIRLOCK_LEDGER_URL", raising=False)
    for name, public in (("clinic", False), ("wdbc", True)):
        handles.write(workspace, Handle(name, name, "records", "csv", f"fingerprint of {name}", 569, public))
    place = project(workspace)
    Ledger.open(place.ledger_url, create=True).set_cap("clinic", 3, 1e-5, who="owner", why="ethics board")
    Ledger.open(place.scratch_url, create=True, scratch=True).set_cap(
        "wdbc", 10, 1e-5, who="airlock", why="scratch default"
    )
    return place


def spend(place: Project, epsilon: float, release_id: str = "a" * 64) -> Ledger:
    ledger = Ledger.open(place.ledger_url, create=False)
    event = {"kind": "gaussian", "noise_multiplier": 1 / calibration.gaussian_mu(epsilon, 1e-5)}
    ledger.reserve(
        "clinic",
        release_id=release_id,
        mechanism="adlm",
        event=event,
        neighbours="zero-out",
        unit="record",
        passes=1,
        public=False,
    )
    return ledger


def ask(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments), catch_exceptions=True)


def told(*arguments: str) -> Any:
    """The JSON answer."""
    return json.loads(ask(*arguments, "--json").stdout)


def test_show_lists_both_ledgers_with_what_is_left(desk: Project) -> None:
    spend(desk, 2.0)
    text = ask("show").stdout
    assert "Scratch ledger (public data only)" in text
    assert "clinic ━━━━━━━━━━━━━━━━━━━━────────── 2 spent of 3 at delta 1e-05, 1 left" in text
    assert "adlm: 2 by itself" in text
    assert "reserved, not committed: crashed or running aaaaaaaaaaaa" in text
    real, scratch = told("show")["ledgers"]
    assert (real["scratch"], scratch["scratch"]) == (False, True)
    (clinic,) = real["populations"]
    assert clinic["epsilon"] == pytest.approx(2)
    assert clinic["reserved"][0]["release_id"] == "a" * 64


def test_show_of_an_unknown_population_names_the_known_ones(desk: Project) -> None:
    error = ask("show", "clinik").exception
    assert isinstance(error, InputError)
    assert "known are clinic, wdbc" in str(error)


def test_missing_ledger_of_a_known_population_is_an_error(desk: Project) -> None:
    (desk.folder / "ledger.db").unlink()
    for arguments in (
        ["show"],
        ["plan"],
        ["history"],
        ["set", "clinic", "--epsilon", "1", "--delta", "1e-6", "--why", "x"],
    ):
        assert isinstance(ask(*arguments).exception, LedgerError), arguments
    assert ask("verify").exit_code == 1
    assert not (desk.folder / "ledger.db").exists()


def test_plan_says_what_auto_stands_for_and_why(desk: Project) -> None:
    assert "coefficients through tabular-2: the map for tabular data" in ask("plan").output
    swept = ask("plan", "--sweep", "release.mechanism=auto,coefficients-iterated,dp-sgd").output
    (line,) = [
        line for line in swept.splitlines() if line.startswith("coefficients-iterated through hybrid-")
    ]
    assert "cosines beside" in line
    assert "records at this epsilon and delta" in line
    assert "dp-sgd" in swept.splitlines()


def test_a_sweep_is_told_whole_where_a_terminal_is_narrow(
    desk: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    swept = ask(
        "plan", "--sweep", "release.epsilon=1,2", "--sweep", "release.mechanism=coefficients,dp-sgd"
    ).output
    assert "…" not in swept
    assert swept.splitlines()[1].split()[-2:] == ["total", "fits"]
    assert swept.count("release.mechanism=coefficients") == 2


def test_plan_prices_params_before_anything_is_read(desk: Project) -> None:
    answer = told("plan")
    assert answer["fits"]
    (point,) = answer["points"]
    assert (point["population"], point["cap_epsilon"], point["before"]) == ("clinic", 3.0, 0.0)
    assert point["together"] == pytest.approx(1.0, rel=1e-9)
    (release,) = [one for one in point["releases"] if one["out"] == "data/released/release"]
    assert (release["status"], release["mechanism"]) == ("new", "coefficients")
    assert ask("plan").exit_code == 0


def test_plan_that_does_not_fit_ends_with_one_and_the_arithmetic(desk: Project) -> None:
    spend(desk, 2.9)
    refused = ask("plan")
    assert isinstance(refused.exception, BudgetRefused)
    assert "clinic: 2.9 spent of 3" in str(refused.exception)
    answer = ask("plan", "--json")
    assert answer.exit_code == 1
    assert not json.loads(answer.stdout)["fits"]


def test_plan_agrees_with_what_reserve_will_say(desk: Project) -> None:
    spend(desk, 1.0)
    largest = Ledger.open(desk.ledger_url, create=False).spent("clinic").largest
    assert ask("plan", "--sweep", f"release.epsilon={largest}").exit_code == 0
    assert ask("plan", "--sweep", f"release.epsilon={largest * 1.01}").exit_code == 1


def test_sweep_adds_up_its_settings(desk: Project) -> None:
    answer = told("plan", "--sweep", "release.epsilon=1,2,2.5")
    totals = [point["together"] for point in answer["points"]]
    assert totals[0] == pytest.approx(1.0)
    assert 2 < totals[1] < 3 < totals[2]
    assert [point["fits"] for point in answer["points"]] == [True, True, False]
    assert not answer["fits"]


def test_sweep_over_the_same_release_costs_once(desk: Project) -> None:
    answer = told("plan", "--sweep", "train.epochs=10,20,30")
    assert [point["together"] for point in answer["points"]] == [answer["points"][0]["together"]] * 3


def test_plan_of_a_private_population_without_cap_names_the_command(desk: Project) -> None:
    (desk.folder / "ledger.db").unlink()
    Ledger.open(desk.ledger_url, create=True)
    assert "airlock budget set clinic --epsilon" in str(ask("plan").exception)


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("release.epsilon", "KEY=VALUE"),
        ("relese.epsilon=1", "no section 'relese'"),
        ("release.epsilom=1", "did you mean 'epsilon'"),
        ("release.epsilon=-1", "greater than 0"),
    ],
)
def test_wrong_sweeps_are_one_line(desk: Project, option: str, words: str) -> None:
    error = ask("plan", "--sweep", option).exception
    assert isinstance(error, InputError | ParamsError)
    assert words in str(error)


def test_set_records_who_and_why(desk: Project) -> None:
    assert (
        ask(
            "set", "clinic", "--epsilon", "5", "--delta", "1e-6", "--why", "second study", "--who", "board"
        ).exit_code
        == 0
    )
    assert ask("set", "wdbc", "--epsilon", "20", "--delta", "1e-5", "--why", "more runs").exit_code == 0
    caps = [
        (entry["scratch"], entry["population"], entry["details"].get("why"))
        for entry in told("history")
        if entry["kind"] == "cap"
    ]
    assert (False, "clinic", "second study") in caps
    assert (True, "wdbc", "more runs") in caps
    text = ask("history", "clinic").stdout
    assert "by owner: ethics board" in text
    assert "epsilon 5 at delta 1e-06, by board: second study" in text


def test_cap_whose_delta_would_publish_a_record_is_refused(desk: Project) -> None:
    error = ask("set", "clinic", "--epsilon", "1", "--delta", "0.002", "--why", "test").exception
    assert isinstance(error, InputError)
    assert "the cap's delta 0.002 must be below 1/n = 0.0018 (n = 569 records is public)" in str(error)
    assert ask("set", "wdbc", "--epsilon", "1", "--delta", "0.002", "--why", "public data").exit_code == 0


@pytest.mark.parametrize("key", ["release.delta", "evaluate.delta"])
def test_plan_refuses_a_delta_above_one_over_n(desk: Project, key: str) -> None:
    error = ask("plan", "--sweep", f"{key}=0.05", "--sweep", "evaluate.holdout=private").exception
    assert isinstance(error, InputError)
    assert f"{key} 0.05 must be below 1/n" in str(error)


def test_raised_cap_is_called_an_odometer(desk: Project) -> None:
    spend(desk, 1.0)
    more = ("set", "clinic", "--epsilon", "5", "--delta", "1e-5", "--why", "more")
    assert "--odometer" in str(ask(*more).exception)
    assert ask(*more, "--odometer").exit_code == 0
    assert "raised after results were seen" in ask("show").stdout
    assert "raised after results were seen" in ask("history", "clinic").stdout
    assert told("show", "clinic")["ledgers"][0]["populations"][0]["raised"]


def test_split_is_kept_and_shown(desk: Project) -> None:
    split = ("--pure", "0.5", "--slack", "1e-6")
    assert ask("set", "clinic", "--epsilon", "3", "--delta", "1e-5", "--why", "mixed", *split).exit_code == 0
    spend(desk, 1.0)
    text = ask("show", "clinic").stdout
    assert "fixed before anything was seen: pure 0 of 0.5, mu 0.2" in text
    assert "slack 0 of 1e-06" in text
    assert "pure 0.5, slack 1e-06" in ask("history", "clinic").stdout


def test_lowered_cap_does_not_stop_what_charges_nothing(desk: Project) -> None:
    """A release that is committed is replayed, whatever became of the cap; only new ones are refused."""
    ledger = Ledger.open(desk.ledger_url, create=False)
    (point,) = budget.price(desk, Path.cwd(), load_params())
    for release in point.quote.asked:
        terms = {key: value for key, value in release.terms().items() if key != "population"}
        ledger.reserve("clinic", release_id=release.release_id, **terms)
    ledger.set_cap("clinic", 0.5, 1e-5, who="owner", why="withdrawn")
    assert not ledger.quote("clinic", []).fits
    assert told("plan")["fits"]
    assert not told("plan", "--sweep", "release.epsilon=0.2")["fits"]


def test_run_that_only_replays_is_not_stopped_by_an_evaluation_that_it_never_makes(desk: Project) -> None:
    """A flow prices the private evaluation with the rest, and does not run it."""
    shutil.copytree(ROOT / "owner", "owner")
    ledger = Ledger.open(desk.ledger_url, create=False)
    params = budget.override(load_params(), {"evaluate.holdout": "private"})
    made = ["data/released/relevance", "data/released/release"]
    assert budget.due(desk, Path.cwd(), params) == made
    (point,) = budget.price(desk, Path.cwd(), params)
    for release in point.quote.asked:
        if release.mechanism != "evaluation":
            terms = {key: value for key, value in release.terms().items() if key != "population"}
            ledger.reserve("clinic", release_id=release.release_id, **terms)
    ledger.set_cap("clinic", 0.5, 1e-5, who="owner", why="withdrawn")
    assert budget.price(desk, Path.cwd(), params)[0].objection, "the evaluation does not fit any more"
    assert budget.due(desk, Path.cwd(), params) == []
    with pytest.raises(BudgetRefused):
        budget.due(desk, Path.cwd(), budget.override(params, {"release.epsilon": 0.2}))


def test_set_of_an_unknown_population_is_refused(desk: Project) -> None:
    assert isinstance(
        ask("set", "clinik", "--epsilon", "5", "--delta", "1e-6", "--why", "typo").exception, InputError
    )


def test_verify_finds_a_ledger_put_back_from_before_a_receipt(desk: Project) -> None:
    Keyring.create(desk)
    backup = (desk.folder / "ledger.db").read_bytes()
    ledger, workspace, sign = spend(desk, 1.0), Path.cwd(), signer(desk)
    receipts.pin(workspace, sign.public_key, owner=True)
    receipts.write(workspace, {"stage": "release", "zone": "release", "ledger": ledger.receipt()}, sign)
    assert ask("verify").exit_code == 0
    (desk.folder / "ledger.db").write_bytes(backup)
    found = ask("verify")
    assert found.exit_code == 1
    assert "real ledger: head" in found.stdout
    assert "was cut or rewritten" in found.stdout


@pytest.mark.parametrize("command", ["show", "plan", "set", "history", "verify"])
def test_every_command_explains_itself_with_an_example(command: str) -> None:
    text = ask(command, "--help").stdout
    assert f"Example: airlock budget {command}" in text


def test_a_model_of_another_column_is_not_judged_and_nothing_is_reserved(desk: Project) -> None:
    """Also where the owner runs the stage by hand: it is refused before orders are taken."""
    params = load_params()
    stage = Stage("evaluate-private", "release", "airlock run evaluate-private", (), (), {})
    label = load_schema(Path("data/schemas/clinic.yaml")).label.column
    for target in (None, label):
        budget.check(desk, Path.cwd(), override(params, {"train.target": target}), stage)
    with pytest.raises(InputError, match=f"judged by the label '{label}'.*nothing was charged"):
        budget.check(desk, Path.cwd(), override(params, {"train.target": "mean_radius"}), stage)
    assert told("show")["ledgers"][0]["populations"][0]["reserved"] == []
