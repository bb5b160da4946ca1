"""A draft's text: a schema with comments of its own, which the confirmed one loses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from airlock.records.guesses import BUCKETS, Choice
from airlock.records.profiles import Profile

DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
MARK = "#: "  # comments that a confirmed schema loses
HEADER = """\
A draft, outside git. Give every number its bounds: the lowest and highest value that the measurement allows,
from a textbook, an instrument or a form. Never from the records: the smallest and largest record would then be public.
Classes, categories and `missing` below were found in the data and are unconfirmed: an odd one may be a person's. Remove
what must not be known, add what is possible but was not met. Then: airlock init --confirm {name}
"""


def written(
    name: str,
    target: Profile,
    image: dict[str, Any] | None,
    choices: Sequence[Choice],
    extra: dict[str, Any],
    number: str | None = None,
) -> str:
    lines = [MARK + line for line in HEADER.format(name=name).splitlines()]
    lines += [
        f"name: {name}",
        'description: ""',
        f"kind: {'image' if image else 'tabular'}",
        "public: false",
        "confirmed: false",
    ]
    lines += [_flow(**{key: value})[1:-1] for key, value in extra.items()]
    if number:
        lines += [f"{MARK}{number}"] + [f"{MARK}found in the data, unconfirmed: missing"] * bool(
            target.missing
        )
        written = {"type": "number", "bounds": None, **_missing_label(target), "why": ""}
        lines += [f"label: {_flow(column=target.name, **written)}"]
    else:
        lines += [
            f"{MARK}found in the data, unconfirmed: classes{', missing' if target.missing else ''}",
            f"label: {_flow(column=target.name, classes=target.values, **_missing_label(target))}",
        ]
    if image:
        lines += [
            f"{MARK}bounds are the darkest and the brightest value, [0, 255] for bytes",
            f"image: {_flow(**image)}",
        ]
    else:
        lines += ["columns:", *(line for choice in choices for line in _column(choice))]
    ignored = [choice for choice in choices if choice.kind == "ignored"]
    lines += [f"{MARK}'{choice.name}': {choice.why}" for choice in ignored]
    lines += [f"ignored: {flow([choice.name for choice in ignored])}"] if ignored else []
    return "\n".join(lines) + "\n"


def _missing_label(target: Profile) -> dict[str, str]:
    return {"missing": "drop"} if target.missing else {}


def _column(choice: Choice) -> Iterator[str]:
    profile = choice.profile
    whole = choice.kind == "number" and profile.whole
    found = {"category": ["categories"]}.get(choice.kind, []) + ["whole"] * whole
    found += ["missing"] * bool(profile.missing)
    form = {"format": choice.form} if choice.form else {}
    kinds: dict[str, dict[str, Any]] = {
        "number": {"type": "number", "bounds": None, **({"whole": True} if whole else {})},
        "date": {"type": "date", "unit": "day", "bounds": None, **form},
        "category": {"type": "category", "categories": profile.values},
        "hashed": {"type": "category", "buckets": BUCKETS},
    }
    fields = kinds.get(choice.kind)
    if fields is None:
        return
    if found:
        yield f"{MARK}found in the data, unconfirmed: {', '.join(found)}"
    tail = {"missing": "impute" if profile.missing else "refuse"} | (
        {"why": ""} if "bounds" in fields else {}
    )
    yield f"- {_flow(name=profile.name, **fields, **tail)}"


def confirmed(text: str) -> str:
    """A draft's text as a confirmed schema: without the draft's own comments."""
    lines = [line for line in text.splitlines() if not line.startswith((MARK.strip(), "confirmed:"))]
    place = next((index for index, line in enumerate(lines) if line.startswith("kind:")), 0)
    return "\n".join([*lines[: place + 1], "confirmed: true", *lines[place + 1 :]]) + "\n"


def _flow(**fields: Any) -> str:
    return flow(fields)


def flow(document: Any) -> str:
    """A value on one line of YAML."""
    return yaml.dump(
        document, Dumper=DUMPER, default_flow_style=True, width=2**31 - 1, sort_keys=False, allow_unicode=True
    ).strip()
