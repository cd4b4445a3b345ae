"""Rankings: the list of items of each user, as a recommender shows it."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from gnndelete.errors import SettingError
from gnndelete.graph.hetero import EdgeType
from gnndelete.metrics.lists import LENGTH
from gnndelete.metrics.ranking import ranking
from gnndelete.tasks.base import Predict, draw
from gnndelete.tasks.link import LISTED_PAIRS, Decoder, LinkPrediction


class RankingPrediction(LinkPrediction):
    """Which items come first in the list of a user?

    Link prediction as recommenders do it: trained by BPR unless another loss is named, and tested by the first ``k`` places of
    the list of each user, from which all known edges but the test edges are left out. NDCG, recall, hit ratio and MRR are
    PyG's, and so are coverage (the share of items that are in any list) and popularity (how often listed items occur in the
    graph, as the mean of the logarithm of one more than their number of edges). Models are validated by AUROC.

    Users are the sources of the edges on a ``HeteroData``, and on a bipartite ``Data`` the part with the node of the smallest
    id. On other graphs every node has a list.

    Args:
        validation: True edges to validate on, as `LinkPrediction` takes them.
        test: True edges to test on.
        decoder: How two rows become a score: ``"dot"``, the name of a method of the model, or a callable.
        validation_negatives: Non-edges to validate on; drawn where they are not given.
        test_negatives: Non-edges to test on; drawn where they are not given.
        seed: Draws non-edges and, of very many users, those that are tested.
        edge_type: On a ``HeteroData``, the edge type that is predicted.
        loss: ``"bpr"`` or ``"bce"``.
        k: The length of a list.

    >>> import gnndelete as gd
    >>> split = gd.datasets.split_links(gd.datasets.load("generated:ratings"))
    >>> task = gd.RankingPrediction(validation=split.validation, test=split.test)
    >>> scores = gd.evaluate(gd.models.LightGCN(split.data.num_nodes), split.data, task)
    >>> sorted(scores)
    ['auprc', 'auroc', 'coverage@10', 'hits@10', 'mrr@10', 'ndcg@10', 'popularity@10', 'recall@10']
    """

    name: ClassVar[str] = "ranking"
    synonyms: ClassVar[set[str]] = {"ranking"}
    description: ClassVar[str] = "ranking of items for users"

    def __init__(
        self,
        validation: Any = None,
        test: Any = None,
        decoder: str | Decoder = "dot",
        validation_negatives: Any = None,
        test_negatives: Any = None,
        seed: int = 0,
        edge_type: EdgeType | None = None,
        loss: Literal["bce", "bpr"] = "bpr",
        k: int = LENGTH,
    ) -> None:
        super().__init__(validation, test, decoder, validation_negatives, test_negatives, seed, edge_type, loss)
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise SettingError(f"'k' is the length of a list, a whole number of at least 1 (got {k!r})")
        self.k = k

    def evaluate_by(self, predict: Predict, data: Any) -> dict[str, float]:
        true, false = self._part(data, "test")
        return ranking(predict(true), predict(false)) | self._list_quality(predict, data, true)

    def _list_quality(self, predict: Predict, data: Any, true: Tensor) -> dict[str, float]:
        """All scores of the first ``k`` places."""
        lists = self.lists(data, shown=False, test=False)
        assert lists is not None
        most = max(LISTED_PAIRS // max(lists.pool.numel(), 1), 1)
        heads = draw(lists.heads(true), most, torch.Generator().manual_seed(self.seed))
        listed = lists.top(lambda pairs: predict(pairs.to(true.device)), heads, self.k)
        return lists.quality(listed, heads, true) | lists.reach(listed)
