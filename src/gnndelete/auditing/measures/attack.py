"""The classifier behind the attacks, and how well it tells deleted elements from others: AUC, mean answer, ROC curve."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_curve
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler

from gnndelete.metrics.ranking import Floats, auc

#: Examples of each kind that an attack learns from at most.
EXAMPLE_LIMIT = 2_000
#: Elements of each kind that an attack is asked about at most.
QUESTION_LIMIT = 5_000
#: The fewest examples of each kind from which a classifier can learn anything.
EXAMPLE_MINIMUM = 10
#: With fewer deleted elements the answer of an attack is called an anecdote.
QUESTION_MINIMUM = 5
#: Points of a ROC curve that a report keeps.
ROC_POINTS = 101


class Attack:
    """A small network that learns to tell two kinds of elements apart: inputs, 100, 50, one probability.

    As in Olatunji et al. (2021): Adam, step 0.01, batches of 32, at most 100 epochs. Their two output units are one
    logistic unit here, which is the same function. Inputs are standardised by the training examples. A fifth of the examples
    is held back to measure the attack itself (``quality``). The last ``bits`` columns are 0 or 1 and stay as they are.

    >>> generator = np.random.default_rng(0)
    >>> attack = Attack(generator.normal(2, 1, (200, 1)), generator.normal(0, 1, (200, 1)), seed=0)
    >>> attack.quality > 0.8
    True
    """

    def __init__(self, present: Floats, absent: Floats, seed: int, bits: int = 0) -> None:
        generator = np.random.default_rng(seed)
        count = min(len(present), len(absent), EXAMPLE_LIMIT)
        kinds = [generator.permutation(kind)[:count] for kind in (present, absent)]
        held_back = max(1, count // 5)
        examples = np.concatenate([kind[held_back:] for kind in kinds])
        self._bits = bits
        self._scaler = StandardScaler().fit(examples[:, : examples.shape[1] - bits])
        self._network = MLPClassifier(
            hidden_layer_sizes=(100, 50),
            learning_rate_init=0.01,
            batch_size=min(32, len(examples)),
            max_iter=100,
            alpha=0.3,  # without it two seeds of the same attack differ by more than two models do
            early_stopping=len(examples) >= 400,  # a tenth of fewer examples is too small to stop by
            random_state=seed,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # 100 epochs are the attack as published
            self._network.fit(self._inputs(examples), np.repeat([1, 0], count - held_back))
        self.quality = auc(*(self.presence(kind[:held_back]) for kind in kinds))

    def presence(self, features: Floats) -> Floats:
        """The probability that each element was among the training data."""
        return np.asarray(self._network.predict_proba(self._inputs(features))[:, 1], dtype=np.float64)

    def _inputs(self, features: Floats) -> Floats:
        width = features.shape[1] - self._bits
        scaled = self._scaler.transform(np.nan_to_num(features[:, :width]))
        return np.concatenate([scaled, features[:, width:]], axis=1)


@dataclass(frozen=True)
class AttackResult:
    """What an attack achieved on one model.

    Args:
        auc: Deleted against other elements.
        mean: The mean answer on the deleted elements.
        roc: The curve: ``fpr`` and ``tpr``.
        same: Whether every element got the same answer, so that the AUC is 0.5 whatever the model knows.
    """

    auc: float
    mean: float
    roc: dict[str, list[float]]
    same: bool = False

    @classmethod
    def of(cls, deleted: Floats, others: Floats) -> AttackResult:
        """From the answers on deleted and on other elements.

        >>> AttackResult.of(np.array([0.9, 0.4]), np.array([0.4, 0.1])).roc["tpr"][-1]
        1.0
        """
        every = np.concatenate([deleted, others])
        fpr, tpr, _ = roc_curve(np.repeat([1, 0], [len(deleted), len(others)]), every)
        if len(fpr) > ROC_POINTS:
            grid = np.linspace(0, 1, ROC_POINTS)
            fpr, tpr = grid, np.interp(grid, fpr, tpr)
            tpr[0] = 0.0  # where the curve starts with a step, the point at its foot
        return cls(
            auc=auc(deleted, others),
            mean=float(np.mean(deleted)),
            roc={"fpr": np.round(fpr, 4).tolist(), "tpr": np.round(tpr, 4).tolist()},
            same=bool(np.ptp(every) <= 1e-12 * np.max(every)),  # up to the last digits of a sum
        )
