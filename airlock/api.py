"""A trained model for other programs: `from airlock import Model`, with the methods that scikit-learn's
classifiers have.

    model = Model.load("data/model")
    model.predict_proba(frame)         # a pandas frame, an Arrow table, a dict of columns, or the path of a file

Nothing is learned here and nothing is sent anywhere: the folder holds all that prediction needs, and records
stay where they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import RegressorTags

from airlock.errors import InputError
from airlock.models.features.softmax import softmax
from airlock.models.predict import encoded_batches
from airlock.records.encoding import Encoded, encode
from airlock.records.schema import Schema
from airlock.records.schema_checks import check_columns
from airlock.storage import load_model


class Model(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model folder as a scikit-learn classifier that is fitted already.

    Attributes:
        path: the folder, `data/model` or one that `airlock export --sklearn` wrote.
        classes_: names of the classes, in the order of `predict_proba`'s columns; of a number, its name alone.
        feature_names_in_: the columns that records must have.
    """

    def __init__(self, path: str | Path = "data/model") -> None:
        self.path = path
        self._model = load_model(Path(path))
        if "schema" not in self._model.document:
            raise InputError(f"{path} has no schema inside: train it again with this version")
        self._schema = Schema.model_validate(self._model.document["schema"])
        self.classes_ = np.array(self._model.labels)
        self.feature_names_in_ = np.array(self._schema.sources, dtype=object)
        self.n_features_in_ = len(self._schema.sources)

    @classmethod
    def load(cls, path: str | Path = "data/model") -> Model:
        """Read a model folder.

        Raises:
            InputError: it is not one.
        """
        return cls(path)

    @property
    def schema(self) -> Schema:
        """What a record looks like: columns, bounds, classes."""
        return self._schema

    @property
    def _number(self) -> tuple[float, float]:
        return self._model.number or (-np.inf, np.inf)

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn takes it for."""
        tags = super().__sklearn_tags__()
        if self._model.number:
            tags.estimator_type, tags.classifier_tags, tags.regressor_tags = (
                "regressor",
                None,
                RegressorTags(),
            )
        return tags

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy, as of scikit-learn's classifiers; of a number R^2, as of its regressors."""
        mixin = RegressorMixin if self._model.number else ClassifierMixin
        return float(mixin.score(self, X, y, sample_weight))

    def fit(self, X: Any, y: Any = None) -> Model:
        """Refused: training is what the pipeline does, behind the wall."""
        raise InputError(
            "this model is trained: train another with `dvc repro`, which keeps records behind the wall"
        )

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Logits, (n, classes); a row of NaN for a record that the schema drops."""
        return self._rows(X, self._model.logits)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, (n, classes); a row of NaN for a record that the schema drops.

        Raises:
            InputError: the label is a number.
        """
        if self._model.number:
            raise InputError("this model predicts a number, which has no classes: use predict")
        return self._rows(X, lambda records: softmax(self._model.logits(records)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Names of the likeliest classes, None for a record that the schema drops; of a label that is a number,
        its values, NaN for such a record.
        """
        if self._model.number:
            return self._rows(X, lambda records: np.clip(self._model.logits(records), *self._number))[:, 0]
        logits = self.decision_function(X)
        known = np.isfinite(logits).all(axis=1)
        names = self.classes_.astype(object)[np.where(known, np.nan_to_num(logits).argmax(axis=1), 0)]
        names[~known] = None
        return names

    def _rows(self, X: Any, function: Any) -> NDArray[np.float64]:
        parts = [np.zeros((0, len(self.classes_)))]
        for encoded in self._encoded(X):
            rows = function(encoded.x)
            rows[encoded.valid == 0] = np.nan
            parts.append(rows)
        return np.concatenate(parts)

    def _encoded(self, X: Any) -> Iterator[Encoded]:
        if isinstance(X, (str, Path)):
            yield from encoded_batches(self._model, Path(X))
            return
        table = as_table(X)
        wanted = [name for name in table.column_names if name in self._schema.sources]
        check_columns(wanted, self._schema, with_label=False)
        yield encode(table.select(wanted), self._schema, with_labels=False)


def as_table(frame: Any) -> pa.Table:
    """Columns of a pandas frame, a dict or an Arrow table or batch, as an Arrow table.

    Raises:
        InputError: it is none of them.
    """
    try:
        if isinstance(frame, pa.RecordBatch):
            return pa.Table.from_batches([frame])
        if isinstance(frame, Mapping):
            return pa.table(dict(frame))
        if type(frame).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(frame, preserve_index=False)
        if hasattr(frame, "__arrow_c_stream__"):  # polars and others
            return pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError):
        raise InputError("these columns cannot be read: give numbers and text, one value a record") from None
    raise InputError(
        "give a pandas frame, an Arrow table, a dict of columns, or the path of a CSV or Parquet file"
    )


def load(path: str | Path = "data/model") -> Model:
    """The model in a folder; the same as `Model.load`."""
    return Model.load(path)
