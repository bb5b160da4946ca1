"""What a release will cost and promise, known before any record is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airlock.privacy.guarantees import Guarantee


@dataclass(frozen=True)
class Facts:
    """The public facts about sealed records (data/sealed/meta.json). Nothing here depends on a value.

    Attributes:
        population: the name that the budget belongs to.
        public: the owner declared the whole data set public.
        kind: "tabular" or "image".
        n: training records, null records included; public under zero-out.
        n_holdout: sealed holdout records.
        shape: of one encoded record: (d,) for tables, (height, width, channels) for images.
        labels: class names in order; of a number, the name of its column alone.
        schema: SHA-256 of the confirmed schema.
        fingerprint: keyed fingerprint of the raw records.
        split: the ingest parameters that shaped the split.
        users: number of distinct users, in older data sets only: it depends on records, and nothing needs it.
        per_user: records of one user at most, where the schema names a user column.
        features: feature map named in the schema, if any.
        friends: where records have slots for other users' influence: how many `slots` a record has (its last
            columns), and in how many slots of others (`appearances`) one user is found at most.
        columns: of a table, what the schema says of each (airlock/models/bins.py); None where nobody said.
        label: name of the label's column, beside `columns`.
        layout: of a table, kinds of the encoded columns in order (airlock/models/features/hybrid.py); None for
            data sealed before it was told.
        number: bounds of a label that is a number; None where it is a class.
        participations: on how many nights one record may come, where a population grows night by night.
        night: of a batch after the first (docs/nights.md): its `number` from the first one on, the records of
            the nights `before`, the digest of their fingerprints (`history`), and n, n_holdout and fingerprint
            of the `first`; None for a first batch, and for records that came at once.
    """

    population: str
    public: bool
    kind: str
    n: int
    n_holdout: int
    shape: tuple[int, ...]
    labels: tuple[str, ...]
    schema: str
    fingerprint: str
    split: Mapping[str, Any] = field(default_factory=dict)
    users: int | None = None
    per_user: int | None = None
    features: str | None = None
    friends: Mapping[str, int] | None = None
    columns: Sequence[Mapping[str, Any]] | None = None
    label: str = "label"
    layout: str | None = None
    number: tuple[float, float] | None = None
    participations: int = 1
    night: Mapping[str, Any] | None = None

    @property
    def night_number(self) -> int:
        """Which night it is, from 1."""
        return int(self.night["number"]) if self.night else 1

    @property
    def total(self) -> int:
        """Records of all nights up to this one."""
        return self.n + (int(self.night["before"]) if self.night else 0)

    @property
    def first(self) -> Facts:
        """The facts of the first night, from which what holds for all nights follows."""
        return replace(self, **self.night["first"], night=None) if self.night else self

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Facts:
        """The inverse of `dataclasses.asdict`, after a way through JSON."""
        pairs = {name: tuple(document[name]) for name in ("shape", "labels")}
        number = document.get("number")
        return cls(**{**document, **pairs, "number": tuple(number) if number else None})


@dataclass(frozen=True)
class Plan:
    """One release, priced.

    Attributes:
        mechanism, version: what makes it; a new version is a new release id.
        parameters: everything of params.yaml that shapes the released bytes (hashed into the id).
        passes: how many times records are read.
        interactive: the reads depend on the model being trained.
        claimed: what the paper says, if a paper says anything.
        proven: what follows for exactly these bytes. Its `event` is what the ledger is charged.
        public_only: nothing finite is proven, so only public data may be released this way.
    """

    mechanism: str
    version: int
    parameters: Mapping[str, Any]
    passes: int
    proven: Guarantee
    claimed: Guarantee | None = None
    interactive: bool = False
    public_only: bool = False

    def to_json(self) -> dict[str, Any]:
        """As JSON."""
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        claimed = self.claimed.to_json() if self.claimed else None
        return {**fields, "proven": self.proven.to_json(), "claimed": claimed}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Plan:
        """The inverse of `to_json`, with every field checked.

        Raises:
            ValueError, KeyError, TypeError: it is not a plan.
        """
        plan = cls(
            **{
                **document,
                "proven": Guarantee.from_json(document["proven"]),
                "claimed": Guarantee.from_json(document["claimed"]) if document["claimed"] else None,
            }
        )
        kinds = {"mechanism": str, "version": int, "parameters": dict, "passes": int}
        flags = {"interactive": bool, "public_only": bool}
        for name, kind in (kinds | flags).items():
            if type(getattr(plan, name)) is not kind:
                raise ValueError(f"{name} of a plan is a {kind.__name__}")
        if plan.passes < 0:
            raise ValueError("passes are counted from 0")
        return plan
