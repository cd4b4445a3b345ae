"""The classifier behind the attacks, and how well it tells deleted elements from others: AUC, mean answer, ROC curve."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_curve
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from gnndelete.metrics.ranking import auc

Floats = NDArray[np.float64]

#: Examples of each kind that an attack learns from at most, and elements of each kind it is asked about at most.
LEARNT, ASKED = 2_000, 5_000
#: The fewest of each kind from which a classifier can learn anything, and below which its answer is called shaky.
LEAST, FEW = 10, 5
#: Points of a ROC curve that a report keeps.
POINTS = 101


class Attack:
    """A small network that learns to tell two kinds of elements apart: inputs, 100, 50, one probability.

    As in Olatunji et al. (2021): Adam, step 0.01, batches of 32, at most 100 epochs. Their two output units are one
    logistic unit here, the same function. Inputs are standardised by the training examples; a fifth of the examples is
    held back to measure the attack itself (``quality``).

    >>> generator = np.random.default_rng(0)
    >>> attack = Attack(generator.normal(2, 1, (200, 1)), generator.normal(0, 1, (200, 1)), seed=0)
    >>> attack.quality > 0.8
    True
    """

    def __init__(self, present: Floats, absent: Floats, seed: int, keep: int = 0) -> None:
        # the last `keep` columns are bits, which stay as they are
        generator = np.random.default_rng(seed)
        count = min(len(present), len(absent), LEARNT)
        kinds = [generator.permutation(kind)[:count] for kind in (present, absent)]
        back = max(1, count // 5)
        learnt = np.concatenate([kind[back:] for kind in kinds])
        self._keep = keep
        self._scaler = StandardScaler().fit(learnt[:, : learnt.shape[1] - keep])
        self._network = MLPClassifier(
            hidden_layer_sizes=(100, 50),
            learning_rate_init=0.01,
            batch_size=min(32, len(learnt)),
            max_iter=100,
            alpha=0.3,  # without it two seeds of the same attack differ by more than two models do
            early_stopping=len(learnt) >= 400,  # a tenth of fewer examples is too small to stop by
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 epochs are the attack as published
            self._network.fit(self._inputs(learnt), np.repeat([1, 0], count - back))
        self.quality = auc(*(self.presence(kind[:back]) for kind in kinds))

    def presence(self, features: Floats) -> Floats:
        """The probability that each element was among the training data."""
        return np.asarray(self._network.predict_proba(self._inputs(features))[:, 1], dtype=np.float64)

    def _inputs(self, features: Floats) -> Floats:
        width = features.shape[1] - self._keep
        scaled = self._scaler.transform(np.nan_to_num(features[:, :width]))
        return np.concatenate([scaled, features[:, width:]], axis=1)


def answer(deleted: Floats, others: Floats) -> dict[str, Any]:
    """One entry of a report: the AUC, the mean answer on the deleted elements, and the ROC curve.

    ``same``: every element got the same answer, so that the AUC is 0.5 whatever the model knows.

    >>> answer(np.array([0.9, 0.4]), np.array([0.4, 0.1]))["roc"]["tpr"][-1]
    1.0
    """
    labels = np.repeat([1, 0], [len(deleted), len(others)])
    every = np.concatenate([deleted, others])
    fpr, tpr, _ = roc_curve(labels, every)
    if len(fpr) > POINTS:
        grid = np.linspace(0, 1, POINTS)
        fpr, tpr = grid, np.interp(grid, fpr, tpr)
        tpr[0] = 0.0  # where the curve starts with a step, the point at its foot
    return {
        "auc": auc(deleted, others),
        "mean": float(np.mean(deleted)),
        "same": bool(np.ptp(every) <= 1e-12 * np.max(every)),  # but for the last digits of a sum
        "roc": {"fpr": np.round(fpr, 4).tolist(), "tpr": np.round(tpr, 4).tolist()},
    }


def unavailable(reason: str) -> dict[str, Any]:
    """A section that could not be measured."""
    return {"available": False, "reason": reason}
