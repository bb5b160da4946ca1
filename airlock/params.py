"""params.yaml as values: one section per stage, checked before any data is read."""

from __future__ import annotations

import difflib
import math
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from airlock.errors import ParamsError
from airlock.files import read_plain

Model = TypeVar("Model", bound=BaseModel)

WEIGHING_SHARE = 0.1
"""relevance.share: auto, in the modes that weigh features."""
LEAST, MOST = 1e-9, 1e9
"""The least share of a budget, and the largest epsilon, that noise can be drawn for."""
DEEPEST = 16
"""Levels of options."""
LONGEST_INPUT = 80
"""Of a wrong value, in the line that names it."""


def _off(value: Any) -> Any:
    """YAML 1.1 reads a bare `off` as false; both mean "off" here."""
    return "off" if value is False else value


class Section(BaseModel):
    """Base of every section: unknown keys are errors, numbers are finite, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_switch(cls, value: Any, info: ValidationInfo) -> Any:
        """A bare yes or on is true to YAML, and 1 to a number: nobody meant that."""
        field = cls.model_fields[info.field_name or ""]
        if isinstance(value, bool) and _takes_a_number(field.annotation):
            raise ValueError("input should be a number, and yes, no, on and off are none")
        return value


def _takes_a_number(annotation: Any) -> bool:
    return annotation in (int, float) or any(map(_takes_a_number, get_args(annotation)))


class IngestParams(Section):
    """How records are split before they are sealed.

    Splits depend on row position and a key, never on values.

    Attributes:
        night: which batch of a population that grows night by night (`airlock add --append`).
        start: the batch from which nights are counted: the first one of a horizon (docs/nights.md).
    """

    holdout_fraction: float = Field(0.2, ge=0, lt=1)
    folds: int = Field(0, ge=0, le=1000)
    fold: int = Field(0, ge=0)
    night: int = Field(1, ge=1, le=99999)
    start: int = Field(1, ge=1, le=99999)


class RelevanceParams(Section):
    """What is released first: where the records lie and which features matter.

    Attributes:
        mode: `auto` is what the mechanism asks first; `off` leaves it to the release stage; `statistics` and
            `lrp` weigh features by a small release of their own.
        share: of the squared noise budget (of epsilon, where noise is Laplace's); auto is the mechanism's own.
        epsilon: of the first release alone, at release.delta, in place of a share: whatever changes in
            `release` then, it stays as it was made.
        network: what the relevance of `adlm` goes through.
        quantiles: of a table's numbers, asked before all else: each number then goes through its own. For bounds
            that are wider than the records.
    """

    mode: Annotated[Literal["auto", "off", "statistics", "lrp"], BeforeValidator(_off)] = "auto"
    share: Literal["auto"] | Annotated[float, Field(ge=LEAST, lt=1)] = "auto"
    epsilon: Literal["auto"] | Annotated[float, Field(gt=0, le=MOST)] = "auto"
    network: Literal["auto", "public", "released", "raw"] = "auto"
    quantiles: bool = False

    @property
    def weighs(self) -> bool:
        """Whether a release of its own weighs the features."""
        return self.mode in ("statistics", "lrp")

    @property
    def weighing_share(self) -> float:
        """Of a release that weighs the features."""
        return WEIGHING_SHARE if self.share == "auto" else self.share


class ReleaseParams(Section):
    """What is released, at what price. `options` belongs to the mechanism and is checked by it.

    Attributes:
        horizon: release running totals over so many nights, for one price (docs/nights.md); None releases the
            records of `ingest.night` alone.
    """

    mechanism: str = "coefficients"
    epsilon: float = Field(1.0, gt=0, le=MOST)
    delta: float = Field(1e-5, gt=0, lt=1)
    neighbours: Literal["zero-out", "replace-one"] = "zero-out"
    unit: Literal["record", "user"] = "record"
    passes: Literal["auto"] | int = "auto"
    features: str = "auto"
    reference: bool = True
    engine: Literal["local", "dask"] = "local"
    address: str | None = None
    cluster_timeout: float = Field(60, ge=1, le=86400)
    horizon: int | None = Field(None, ge=1, le=4096)
    options: dict[str, Any] = {}

    @field_validator("options")
    @classmethod
    def _finite(cls, options: dict[str, Any]) -> dict[str, Any]:
        """JSON has no other numbers: on its way to a stage such an option would become one that was not given."""
        _check_finite(options, DEEPEST)
        return options


def _check_finite(value: Any, levels: int) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number in it is not finite")
    if not levels:
        raise ValueError("it is nested too deep")
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _check_finite(each, levels - 1)


class TrainParams(Section):
    """Data-free training. Nothing here costs budget.

    Attributes:
        network: a class of torch modules in stages/open, `stages.open.module:Class`, made by
            `Class(width, classes)`, in place of `head`.
        patience: stop after so many epochs without a better likelihood of the release; None trains all epochs.
        target: another column than the label, from a release of `inputs`.
    """

    method: Literal["closed-form", "sgd", "auto"] = "closed-form"
    ridge: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"
    head: Literal["linear", "mlp"] = "linear"
    epochs: int = Field(200, ge=1)
    learning_rate: float = Field(0.01, gt=0)
    batch: int = Field(512, ge=1)
    hidden: int = Field(64, ge=1)
    seed: int = Field(0, ge=0)
    device: str = "auto"
    network: str | None = Field(None, pattern=r"^stages\.open(\.\w+)+:\w+$")
    patience: int | None = Field(None, ge=1)
    target: str | None = None


class SynthesizeParams(Section):
    """Synthetic records from a release of `inputs`: how many, from which seed, by which model."""

    rows: Literal["auto"] | Annotated[int, Field(ge=1)] = "auto"
    seed: int = Field(0, ge=0)
    model: Literal["tree", "mbi"] = "tree"


class EvaluateParams(Section):
    """Which records a model is judged on. `auto`: public where the data are, otherwise none."""

    holdout: Literal["auto", "none", "public", "private"] = "auto"
    epsilon: float = Field(0.5, gt=0, le=MOST)
    delta: float = Field(1e-6, gt=0, lt=1)
    measures: Literal["accuracy", "all"] = "accuracy"


class BoundaryParams(Section):
    """How strictly the kernel confines stages, and the most that one run of a stage may take.

    Attributes:
        memory: GiB of the whole stage (of each process where there are no control groups); `auto` is nine
            tenths of the machine's.
        processes: processes and threads at once.
        file_size: GiB of one file, and of all outs together.
        output: MiB that are printed or told to the owner's log; what comes after is dropped.
        time: seconds.
    """

    enforcement: Literal["strict", "auto", "advisory"] = "auto"
    memory: Literal["auto"] | Annotated[float, Field(gt=0)] = "auto"
    processes: int = Field(4096, ge=16)
    file_size: float = Field(256, gt=0)
    output: float = Field(64, gt=0)
    time: float = Field(604800, gt=0)


class Params(Section):
    """The whole of params.yaml."""

    dataset: str = Field("wdbc", pattern=r"^[a-z0-9][a-z0-9_-]*$")
    ingest: IngestParams = IngestParams()
    relevance: RelevanceParams = RelevanceParams()
    release: ReleaseParams = ReleaseParams()
    train: TrainParams = TrainParams()
    evaluate: EvaluateParams = EvaluateParams()
    synthesize: SynthesizeParams = SynthesizeParams()
    boundary: BoundaryParams = BoundaryParams()


def load_params(path: Path = Path("params.yaml")) -> Params:
    """Read and check params.yaml.

    Raises:
        ParamsError: one line that names the section, the key and, for a typo, the nearest valid key.
    """
    try:
        text = read_plain(path)
    except FileNotFoundError:
        raise ParamsError(f"{path} is missing: run from the project's top folder") from None
    except (OSError, UnicodeDecodeError):
        raise ParamsError(f"{path} is not a plain text file: replace it by the file itself") from None
    return parse_params(text, str(path))


def parse_params(text: str, source: str = "params.yaml") -> Params:
    """Check the text of params.yaml.

    Raises:
        ParamsError: see `load_params`.
    """
    try:
        document = deepcopy(_document(text))  # nested options are the caller's own
    except yaml.YAMLError as error:
        raise ParamsError(f"{source} is not valid YAML{what_is_wrong(error)}: mend the syntax") from None
    return check(Params, document if document is not None else {}, source)


@lru_cache(maxsize=8)
def _document(text: str) -> Any:
    """What stands in it: one run looks at the same text again and again."""
    return parse_yaml(text)


def parse_yaml(text: str, loader: Any = yaml.SafeLoader) -> Any:
    """The document in a text. No key may stand twice: the last one would count, and the first be lost without a word
    (DVC refuses it too).

    Raises:
        yaml.YAMLError: it is no such text; a date that is none, a number without end and brackets without end are no
            YAML either.
    """
    parser = loader(text)
    try:
        node = parser.get_single_node()
        _refuse_twice(node)
        return None if node is None else parser.construct_document(node)
    except (ValueError, OverflowError) as error:
        raise yaml.YAMLError("a date or a number that is none") from error
    except RecursionError as error:
        raise yaml.YAMLError("nested too deep") from error
    finally:
        parser.dispose()


def parse_value(text: str, source: str) -> Any:
    """A value of the command line, as params.yaml would have it.

    Raises:
        ParamsError: it is none.
    """
    try:
        return parse_yaml(text)
    except yaml.YAMLError:
        raise ParamsError(f"{source}: '{_cut(text)}' is no value: write it as in params.yaml") from None


def what_is_wrong(error: yaml.YAMLError) -> str:
    """The line that an error of YAML is about, or what it says, with nothing of the text."""
    if isinstance(error, _Twice):
        return f" (line {error.line} has a key that stands above already)"
    mark = getattr(error, "problem_mark", None)
    if mark:
        return f" near line {mark.line + 1}"
    return f" ({error})" if type(error) is yaml.YAMLError else ""


class _Twice(yaml.YAMLError):
    def __init__(self, line: int) -> None:
        self.line = line
        super().__init__()


def _refuse_twice(node: yaml.Node | None) -> None:
    left, seen = [node], set()
    while left:
        if (found := left.pop()) is None or id(found) in seen:
            continue
        seen.add(id(found))
        if isinstance(found, yaml.SequenceNode):
            left += found.value
        if isinstance(found, yaml.MappingNode):
            keys = set()
            for key, value in found.value:
                if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in keys:
                    raise _Twice(key.start_mark.line + 1)
                keys.add((key.tag, key.value) if isinstance(key, yaml.ScalarNode) else id(key))
                left += [key, value]


def check(model: type[Model], document: Any, source: str) -> Model:
    """Validate `document` as `model`, turning pydantic's report into one line about its first error."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise ParamsError(f"{source}: {_first_line(model, error)}") from None


def _first_line(model: type[BaseModel], error: ValidationError) -> str:
    first = error.errors()[0]
    path = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(path[-1], _keys_beside(model, path[:-1]), n=1, cutoff=0.4)
        hint = (
            f", did you mean '{near[0]}'?"
            if near
            else f"; valid keys: {', '.join(_keys_beside(model, path[:-1]))}"
        )
        return f"unknown key '{_cut('.'.join(path))}'{hint}"
    place = _field(model, path)
    same = [each for each in error.errors() if _field(model, [str(part) for part in each["loc"]]) == place]
    said = dict.fromkeys(each["msg"].removeprefix("Value error, ") for each in same)
    words = ", or ".join(f"{each[0].lower()}{each[1:]}" for each in said)
    return f"{'.'.join(place) or 'document'}: {words} (got {_cut(repr(first['input']))})"


def _field(model: type[BaseModel], path: list[str]) -> list[str]:
    """The part of a path that stands in the file: of alternatives, pydantic adds which one it tried."""
    for place, part in enumerate(path):
        field = model.model_fields.get(part)
        if field is None:
            return path[:place] or path
        if not (isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)):
            return path[: place + 1]
        model = field.annotation
    return path


def _cut(text: str) -> str:
    """What was given, as far as it can be recognised."""
    return text if len(text) <= LONGEST_INPUT else f"{text[:LONGEST_INPUT]}..."


def _keys_beside(model: type[BaseModel], parents: list[str]) -> list[str]:
    for parent in parents:
        annotation = model.model_fields[parent].annotation
        assert isinstance(annotation, type)
        assert issubclass(annotation, BaseModel)
        model = annotation
    return sorted(model.model_fields)
