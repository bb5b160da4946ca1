"""Figures on the pages about the five papers are those of bench/results."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOP = Path(__file__).parents[1]
RESULTS = TOP / "bench/results"
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def page(name: str) -> str:
    return (TOP / f"docs/errata/{name}.md").read_text()


def kept(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def table(name: str, title: str, after: str = "") -> list[list[str]]:
    """Cells of the lines below the first heading that begins so (after some words of the page), and that heading."""
    lines = page(name).split(after, 1)[1].splitlines() if after else page(name).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {title}"))
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip().replace("*", "") for cell in line.strip("|").split("|")])
    assert set("".join(rows.pop(1))) <= set("-:")
    return rows


def shown(cell: str) -> list[tuple[float, float]]:
    """Every number of a cell with half of its last digit."""
    found = []
    for word in NUMBER.findall(cell):
        digits = len(word.split(".")[1]) if "." in word else 0
        found.append((float(word.replace(",", "")), 0.5001 * 10**-digits))
    return found


def agrees(cell: str, *values: float | None) -> None:
    numbers = shown(cell)
    assert len(numbers) == len(values), (cell, values)
    for (told, about), value in zip(numbers, values, strict=True):
        assert value is not None and abs(told - value) <= about, (cell, value)


def program(mechanism: str, claimed: float, part: str, unit: bool = False) -> dict[str, Any]:
    reading = "preset authors-code, " + "pixels unit, allocation clamped, " * unit
    reading += "predicting by a batch's statistics" + f", {part}" * (part != "whole batches")
    asked = (mechanism, claimed, reading)
    (row,) = (
        one
        for one in kept("adlm-program")["runs"]
        if (one["mechanism"], one["claimed"], one["reading"]) == asked
    )
    found: dict[str, Any] = row
    return found


def test_adlms_curves() -> None:
    heading, *rows = table("adlm", "epochs of 33 steps")
    assert len(rows) > 9
    for label, *cells in rows:
        found = re.fullmatch(r"(AdLM|ILM), claimed ([\d.]+), (whole batches|120 of each 1,800)(.*)", label)
        assert found and found[4] in ("", ", in [0, 1]"), label
        row = program(found[1].lower(), float(found[2]), found[3], bool(found[4]))
        for epoch, cell in zip(heading[1:], cells, strict=True):
            if cell:
                agrees(cell, 100 * row["curves"]["batch"][epoch])
    heading, *rows = table("adlm", "epochs of 7 steps")
    row = program("adlm", 2.5, "720 of each 7,200")
    for curve, (_, *cells) in zip(("batch", "stored"), rows, strict=True):
        for epoch, cell in zip(heading[1:], cells, strict=True):
            agrees(cell, 100 * row["curves"][curve][epoch])


def test_adlms_ablations() -> None:
    _, *rows = table("adlm", "| accuracy, % |", "### What reading raw records")
    found = {
        row["variant"].replace("|", "&#124;"): 100 * row["accuracy"]
        for row in kept("adlm-ablations")["ablations"]
        if (row["claimed"], row["steps"]) == (0.5, 250)
    }
    assert {name for name, _ in rows} == found.keys()
    for name, cell in rows:
        agrees(cell, found[name])


def test_what_is_said_of_adlms_relevance_and_of_what_comes_out_of_its_release() -> None:
    text, maps = page("adlm"), kept("adlm-maps")
    mean = np.array(maps["mean"])
    powered = ((mean - mean.min()) / (mean.max() - mean.min())) ** 4
    released = [np.array(maps["released"][name]) for name in ("0.25", "0.5", "2")]
    scales = [maps["noise_scale"][name] for name in ("0.25", "0.5", "2")]
    assert (
        "noise has a scale of {:.2f}, {:.2f} and {:.2f} at a claimed 0.25, 0.5 and 2".format(*scales) in text
    )
    assert f"only {(powered > 0.5).sum()} of 784 pixels are above 0.5" in text
    alike = [np.corrcoef(powered, one)[0, 1] for one in released]
    assert "with the map before noise is {:.2f}, {:.2f} and {:.2f}".format(*alike) in text
    least = [100 * (one < 1e-5).mean() for one in released]
    assert "{:.0f}, {:.0f} and {:.0f} % of the pixels come out below the floor".format(*least) in text
    given = kept("adlm-reconstructed")["reconstructed"]
    assert f"all **{given['records_exact']:,} of {given['records']:,}** digits come out" in text
    assert given["labels_exact"] == given["records"] and given["pixels_exact"] == 1
    assert "a quarter of the inked pixels" in text and round(100 * given["ink_exact_after_the_cut"]) in range(
        23, 28
    )


def test_even_noise_of_adlms_two_programs_is_as_large_as_they_say() -> None:
    from stages.release.papers.adlm import adlm
    from tests.support.comparison import MNIST, facts, params

    digits = adlm.resolve(params("adlm", epsilon=0.5, preset="authors-code"), MNIST)
    unit = adlm.resolve(
        params("adlm", epsilon=0.5, preset="authors-code", pixels="unit", allocation="clamped"), MNIST
    )
    pictures = adlm.resolve(
        params("adlm", epsilon=2.5, preset="authors-code"), facts((32, 32, 3), 50_000, 10)
    )
    text = page("adlm")
    told = f"a scale of {digits.input_scale:.0f} pixels' ranges with even shares ({unit.input_scale:.0f} in [0, 1])"
    assert told in text
    told = f"a scale of {pictures.input_scale:.2f} of a pixel's range here with even shares"
    assert f"{told}, and of {digits.input_scale:.0f} there at 0.5" in text


def test_records_a_second() -> None:
    found = {(one["cell"], one["way"]): one for one in kept("throughput")["throughput"]}
    _, *rows = table("adlm", "records a second | whole batches")
    for way, (_, *cells) in zip(("before", "pages", "now"), rows, strict=True):
        for part, cell in zip(("batches of 1,800", "120 of a batch"), cells, strict=True):
            agrees(cell, found[f"adlm, {part}", way]["records_a_second"])
    _, *rows = table("pcdbn", "| version 2 | pages kept")
    names = {"pre-training of both, one step each": "pre-training of both layers"}
    for name, *cells in rows:
        cell = f"pcdbn, {names.get(name, name)}, 120 of a batch"
        for way, told in zip(("before", "pages", "now"), cells, strict=False):
            agrees(told, found[cell, way]["records_a_second"])
        agrees(cells[3], found[cell, "now"]["ratio"])
        if shown(cells[4]):
            agrees(cells[4], found[cell, "pooling"]["records_a_second"])


def belief(
    claimed: float, polynomial: str = "published-7", part: str = "but 120 of each 3,600, "
) -> dict[str, Any]:
    reading = f"authors-code {part}{polynomial}, 32 and 64 maps".replace("code p", "code, p")
    (row,) = (
        one
        for one in kept("pcdbn")
        if (one["reading"], one["claimed"]) == (reading, claimed) and "curves" in one
    )
    found: dict[str, Any] = row
    return found


def test_pcdbns_curves() -> None:
    heading, *rows = table("pcdbn", "epochs | 1 |")
    parts, whole = belief(0.5)["curves"]["0"], belief(0.5, part="")["curves"]["0"]
    curves = (parts["stored"], parts["batch"], whole["stored"], whole["batch"])
    for curve, (_, *cells) in zip(curves, rows, strict=True):
        for epoch, cell in zip(heading[1:], cells, strict=True):
            agrees(cell, 100 * curve[epoch.replace(",", "")])
    gaps = [100 * (value - parts["stored"][epoch]) for epoch, value in parts["batch"].items()]
    told = re.search(r"is worth ([\d.]+) points in the end and ([\d.]+) to (\d+) on the way", page("pcdbn"))
    assert told
    agrees(told[1], 100 * (parts["batch"]["2400"] - parts["stored"]["2400"]))
    agrees(told[2], min(gaps))
    agrees(told[3], max(gaps))


def test_pcdbns_epsilons_keys_and_degrees() -> None:
    _, *rows = table("pcdbn", "claimed | key |")
    for claimed, key, polynomial, stored, batch, best in rows:
        curves = belief(float(claimed), polynomial)["curves"][key]
        agrees(stored, 100 * curves["stored"]["2400"])
        agrees(batch, 100 * curves["batch"]["2400"])
        epoch = max(curves["batch"], key=lambda one: curves["batch"][one])
        agrees(best, 100 * curves["batch"][epoch], float(epoch))
    heading, *rows = table("pcdbn", "polynomial | 10 epochs")
    for polynomial, *cells in rows:
        curves = belief(0.5, polynomial)["curves"]["0"]
        for title, cell in zip(heading[1:], cells, strict=True):
            epoch = title.split()[0].replace(",", "").replace("epochs", "")
            agrees(cell, 100 * curves["stored" if "training" in title else "batch"][epoch])


def interactive(**asked: Any) -> dict[str, Any]:
    (row,) = (
        one
        for one in kept("interactive")["runs"]
        if all(one.get(name) == value for name, value in asked.items())
    )
    found: dict[str, Any] = row
    return found


@pytest.mark.parametrize(
    ("title", "case"),
    [
        ("units | softplus", "softplus, no biases"),
        ("first weights |", "first weights N(0, 1 / inputs)"),
        ("batch, epochs | 50, 20 | 500, 50", "batches of 50, 20 epochs"),
        ("rate, decay | 0.001", "rate 0.001, decay 0.9"),
        ("z: rate | 0.02", "z: rate 0.02"),
        ("z: steps", "z: plain descent"),
        ("thresholds | 0.01", "thresholds learned, 0.01 at most"),
        ("bounds on z and w | 12.5", "bounds 12.5 and 20"),
        ("sigma | 2.2", "sigma 2.2"),
        ("pixels |", "centred pixels"),
        ("batches | slices", "batches of a fixed order"),
        ("covariance (MNIST)", "the program's directions, MNIST"),
    ],
)
def test_what_dp_macs_program_does_otherwise(title: str, case: str) -> None:
    (row,) = (one for one in kept("papers/mac-ablations") if one["case"] == case)
    (line,) = (one for one in page("dp-mac").splitlines() if one.startswith(f"| {title}"))
    *_, cell = line.strip("| ").split("|")
    value = row.get("mean_squared_error") or 100 * row["accuracy"]
    assert shown(cell) and abs(shown(cell)[0][0] - value) <= 0.0501, (cell, value)


def test_dp_macs_errors() -> None:
    _, *rows = table("dp-mac", "claimed | 8 | 4")
    cells = {name: one for name, *one in rows}
    readings = {
        "Table 2 with the program's units and first weights": "preset paper-usps, units relu, initial glorot",
        "the program's settings (`authors-usps`)": "preset authors-usps",
        "the same with the noise that the claim allows (`sigma: auto, allocation: sharp`)": (
            "preset authors-usps, sigma auto, allocation sharp"
        ),
        "`dp-sgd` on the program's autoencoder, at a proven 8, 4, 2 and 1": "model autoencoder",
    }
    names = list(cells)
    for name, reading in readings.items():
        for place, epsilon in enumerate((8.0, 4.0, 2.0, 1.0)):
            row = interactive(dataset="usps", reading=reading, epsilon=epsilon)
            error = row["mean_squared_error"]
            agrees(cells[name][place], error, error / 2)
            below = rows[names.index(name) + 1] if name != names[-1] else ["-"]
            if below[0] == "what that proves":
                agrees(below[1 + place], row["proven"])


def test_dp_macs_accuracies() -> None:
    ways = {
        "the program's settings (`authors-mnist`)": ("dp-mac", "preset authors-mnist"),
        "the same with the noise that the claim allows": (
            "dp-mac",
            "preset authors-mnist, sigma auto, allocation sharp",
        ),
        "Table 2's network, sigma 5.8 and 1.7": ("dp-mac", "preset paper-mnist, units relu, initial glorot"),
    }
    _, *first = table("dp-mac", "claimed | 0.5 | 2", "MNIST, 60,000 records, one run each")
    _, *second = table("dp-mac", "claimed | 0.5 | 2", "all 20 epochs (25,200 steps), one run each")
    rows, seen = [*first, *second], 0
    for place, (name, *cells) in enumerate(rows):
        if name in ways:
            for column, epsilon in enumerate((0.5, 2.0)):
                mechanism, reading = ways[name]
                row = interactive(dataset="mnist", mechanism=mechanism, reading=reading, epsilon=epsilon)
                agrees(cells[column], 100 * row["accuracy"])
                agrees(rows[place + 1][1 + column], row["proven"])
                seen += 1
    assert seen == 2 * len(ways)


@pytest.mark.parametrize(
    ("after", "dataset", "epochs", "more", "claims"),
    [
        (
            "## What was measured, and what was not",
            "mnist",
            3,
            {"published": "preset paper-mnist"},
            (0.05, 0.3, 1.0),
        ),
        (
            "Without convolutions from raw records",
            "cifar10-jpeg",
            3,
            {"published": "preset paper-cifar10", "": "model perceptron"},
            (0.3, 1.0),
        ),
        (
            "CIFAR-10 (JPEG), 50,000 records, one run each",
            "cifar10-jpeg",
            10,
            {"published": "preset paper-cifar10", "": "model six-convolutions, lower raw"},
            (0.3, 1.0),
        ),
    ],
)
def test_optimized_noises_accuracies(
    after: str, dataset: str, epochs: int, more: dict[str, str], claims: tuple[float, ...]
) -> None:
    """And what is proven, in brackets, where something is."""
    _, *rows = table("optimized-noise", "| 0.", after)
    mechanisms = {
        "as published, `solution: isotropic`": "optimized-noise",
        "`ellipsoid-noise`": "ellipsoid-noise",
    }
    mechanisms["`dp-sgd`"] = "dp-sgd"
    for name, *cells in rows:
        if name not in mechanisms:
            continue
        published = name.startswith("as published")
        reading = ", ".join(
            [more["published"], "solution isotropic"] * published + [more.get("", "")] * ("" in more)
        )
        for claimed, cell in zip(claims, cells, strict=True):
            if "not run" not in cell:
                row = interactive(
                    dataset=dataset,
                    mechanism=mechanisms[name],
                    epsilon=claimed,
                    epochs=epochs,
                    reading=reading or "calibrated",
                )
                proven = row["proven"] if "(" in cell else None
                agrees(cell, 100 * row["accuracy"], *([] if proven is None else [proven]))


def test_how_neuron_noises_curves_end() -> None:
    curves = {
        one["key"]: [round(100 * value, 1) for value in one["accuracies"]]
        for one in kept("papers/neuron-epochs")
        if one["dataset"] == "mnist" and one["options"]["batch"] == 1800 and not one.get("after")
    }
    assert {len(one) for one in curves.values()} == {25}
    text, ends, best = (
        page("neuron-noise"),
        [curves[key][-1] for key in range(3)],
        [max(curves[key]) for key in range(3)],
    )
    assert f"({best[0]} and {best[1]} %), the third never is ({best[2]} %)" in text
    assert (
        f"swings between {min(curves[2][10:])} and {max(curves[2][10:])} % to the end, which is {ends[2]} %"
        in text
    )
    assert f"ends at {ends[0]} %, one look after {curves[0][-2]}" in text
    assert f"the same key ends at {ends[1]} %**" in text
    assert f"The three end at {np.mean(ends):.1f} % on average, deviation {np.std(ends, ddof=1):.1f}" in text
    assert f"{ends[0]}, {ends[1]} and {ends[2]} %, three keys, {np.mean(ends):.1f} % on average" in page(
        "items"
    )


def test_what_canaries_found() -> None:
    found = {
        (one["mechanism"], one["epsilon"]): one["findings"][0]
        for one in kept("attacks")["attacks"]
        if one["kind"] == "canaries" and one["findings"][0]["proven"] == "infinity"
    }
    right = [found["neuron-noise", epsilon]["right"] for epsilon in (0.1, 0.5, 1.0)]
    least = [f"{found['neuron-noise', epsilon]['epsilon']:.2f}" for epsilon in (0.1, 0.5, 1.0)]
    text, belief_found = page("neuron-noise"), found["pcdbn", 0.5]
    assert "{} of 250 guesses are right at a claimed 0.1, {} at 0.5 and {} at 1".format(*right) in text
    assert "epsilon is at least **{}**, **{}** and {} ".format(*least) in text
    least.append(f"{belief_found['epsilon']:.2f}")
    assert (
        f"{belief_found['right']} of 250 guesses\nare right, so epsilon is at least **{least[3]}**"
        in page("pcdbn")
    )
    attacks = (TOP / "docs/attacks.md").read_text()
    assert "has {}, {} and {}, pCDBN's program at a claimed 0.5 has **{}**".format(*least) in attacks
    assert f"(at least {least[3]}) and neuron noise's of 0.1 and 0.5 ({least[0]}, {least[1]})" in page(
        "items"
    )
    assert {one["confidence"] for one in found.values()} == {0.975}
