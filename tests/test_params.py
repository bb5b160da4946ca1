"""params.yaml: every wrong value is one short line that says what would be right, before anything is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from airlock.errors import InputError, ParamsError, SchemaError
from airlock.params import Params, parse_params
from airlock.records.filling import parse_bound, read_dictionary
from airlock.records.schema_file import load_schema
from airlock.run.budget import read_sweep
from tests.conftest import ROOT


def said(text: str) -> str:
    with pytest.raises(ParamsError) as error:
        parse_params(text)
    line = str(error.value)
    assert line.startswith("params.yaml") and len(line) < 250 and "\n" not in line
    return line


def test_the_shipped_ones_are_right() -> None:
    assert parse_params((ROOT / "params.yaml").read_text()).dataset == "wdbc"
    assert parse_params("") == Params()


@pytest.mark.parametrize(
    "text", ["dataset: a\ndataset: b\n", "release: {epsilon: 3}\ntrain: {}\nrelease: {mechanism: inputs}\n"]
)
def test_a_key_that_stands_twice_is_refused(text: str) -> None:
    """The last one counted, and the first section, with its epsilon, was lost without a word."""
    assert "has a key that stands above already" in said(text)
    assert f"line {len(text.splitlines())} " in said(text)


def test_keys_that_only_look_alike_are_two() -> None:
    """And what is written once and meant twice stays right."""
    options = parse_params("release: {options: {'1': a, x: &y {k: 1}, z: *y}}").release.options
    assert options == {"1": "a", "x": {"k": 1}, "z": {"k": 1}}


@pytest.mark.parametrize(
    "text", ["dataset: 2024-02-30\n", f"dataset: {'9' * 5000}\n", f"a: {'[' * 5000}", "release: {epsilon: 1"]
)
def test_what_yaml_cannot_read_is_no_yaml(text: str) -> None:
    assert "is not valid YAML" in said(text)


@pytest.mark.parametrize("switch", ["yes", "true", "off"])
@pytest.mark.parametrize(
    "place", ["release.epsilon", "release.passes", "relevance.share", "train.epochs", "boundary.memory"]
)
def test_a_switch_is_no_number(place: str, switch: str) -> None:
    section, key = place.split(".")
    assert f"{place}: input should be a number, and yes, no" in said(f"{section}: {{{key}: {switch}}}")


def test_switches_stay_switches() -> None:
    found = parse_params("relevance: {mode: off, quantiles: yes}\nrelease: {reference: no}\n")
    assert (found.relevance.mode, found.relevance.quantiles, found.release.reference) == ("off", True, False)


@pytest.mark.parametrize("section", ["release", "evaluate", "relevance"])
@pytest.mark.parametrize("epsilon", ["1.0e+308", "0", "-1", ".nan", ".inf"])
def test_an_epsilon_is_one_that_noise_can_be_drawn_for(section: str, epsilon: str) -> None:
    assert f"{section}.epsilon: input should be" in said(f"{section}: {{epsilon: {epsilon}}}")


@pytest.mark.parametrize("value", [".nan", ".inf", "[1, -.inf]", "{a: {b: .nan}}"])
def test_options_are_finite(value: str) -> None:
    """They were dropped on their way to the stage, which then took its defaults."""
    assert "release.options: a number in it is not finite" in said(
        f"release: {{options: {{rounds: {value}}}}}"
    )


def test_options_end() -> None:
    assert "release.options: it is nested too deep" in said("release: {options: &a {x: *a}}")


def test_alternatives_are_named_side_by_side() -> None:
    """It said that a share should be 'auto', as if no number would do, and named a part of pydantic's."""
    line = said("relevance: {share: 2}")
    assert "relevance.share: input should be 'auto', or input should be less than 1 (got 2)" in line
    assert "dataset.x" not in said("dataset: {x: 1}")


def test_a_long_value_is_not_repeated_whole() -> None:
    assert said(f"release: {{engine: {'x' * 9000}}}").endswith("...)")
    assert said(f"release: {{{'x' * 9000}: 1}}")
    assert said(f"[{'x,' * 9000}]")


@pytest.mark.parametrize("value", ["2024-13-01", "{", "{1", "&", "!!python/name:os.system x"])
def test_odd_values_of_the_command_line_are_one_line(value: str) -> None:
    with pytest.raises(InputError):
        parse_bound(f"{value},3")
    with pytest.raises(InputError, match="is no value"):
        read_sweep([f"release.epsilon={value}"])


def test_a_dictionary_whose_line_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "dictionary.csv").write_text("low,high,name\n0,1\n")
    assert set(read_dictionary(tmp_path / "dictionary.csv")) == {""}


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("label: {column: y, classes: [a, b]}\nlabel: {column: x, classes: [a, b]}", "stands above"),
        ("columns:\n- {name: d, type: date, bounds: [2019-02-30, 2026-12-31]}", "a date or a number"),
        ("columns:\n- {name: d, type: number, bounds: [0, 1], bounds: [0, 9]}", "stands above"),
    ],
)
def test_a_schema_is_read_with_the_same_care(tmp_path: Path, lines: str, word: str) -> None:
    (tmp_path / "clinic.yaml").write_text(f"name: clinic\nkind: tabular\n{lines}\n")
    with pytest.raises(SchemaError, match=word):
        load_schema(tmp_path / "clinic.yaml", draft=True)
