"""GNNDelete trained as its authors' public code trains it, looked at every 100 epochs: which checkpoint was printed?

    GNNDELETE_DATA=… python benchmarks/checkpoints.py --dataset dblp --model gin --amount 0.005 0.025 --where in out

The operators start at 1/1000, learn on the edges around the deletion, the deleted ones with them, while the second layer's
gradient stays on the first until the next step, and are served on the remaining graph. The authors keep the checkpoint with the
best sum of validation AUROC and deleted AUROC, which they report. `GNNDelete.paper` has the minimum of the same losses,
each by itself, and is chosen by no score. Deleted AUROC is taken against all remaining edges.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from options import at_least_one, device_name
from sklearn.metrics import roc_auc_score
from tables import link_task
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.utils import k_hop_subgraph, negative_sampling

import gnndelete as gd

EPOCHS, EVERY = 1500, 100


def auroc(z: Tensor, high: Tensor, low: Tensor) -> float:
    """How surely pairs score above others, as dot products of their ends."""
    scores = torch.cat([(z[ends[0]] * z[ends[1]]).sum(dim=1) for ends in (high, low)])
    labels = torch.cat([torch.ones(high.size(1)), torch.zeros(low.size(1))])
    return float(roc_auc_score(labels.numpy(), scores.detach().cpu().numpy()))


def near(deleted: Tensor, edges: Tensor, nodes: int, hops: int) -> tuple[Tensor, Tensor]:
    """Nodes on edges within some hops of the deleted ones, and these edges both ways; on the list of u < v, as PyG walks."""
    upward = edges[:, edges[0] < edges[1]]
    _, _, _, inside = k_hop_subgraph(deleted.flatten().unique(), hops, upward, num_nodes=nodes)
    found = upward[:, inside]
    rows = torch.zeros(nodes, 1, dtype=torch.bool, device=edges.device)
    rows[found.flatten()] = True
    return rows, torch.cat([found, found.flip(0)], dim=1)


def trained(model: nn.Module, data: Data, remaining: Data, deleted: Tensor, lam: float) -> Iterator[tuple[int, Tensor]]:
    """The output on the remaining graph after every so many epochs."""
    first, second = model.convs
    nodes = data.num_nodes
    (near_one, _), (near_two, around) = (near(deleted, data.edge_index, nodes, hops) for hops in (1, 2))
    others = torch.ones(nodes, dtype=torch.bool, device=deleted.device).index_fill(0, deleted.flatten(), False)
    ends = torch.cat([deleted, deleted.flip(0)], dim=1)
    drawn = negative_sampling(data.edge_index, num_nodes=nodes, num_neg_samples=ends.size(1))
    with torch.no_grad():
        inputs, served = (first(data.x, edges) for edges in (around, remaining.edge_index))
        aims = served, second(F.relu(served), remaining.edge_index)
    maps = [nn.Parameter(torch.full((aim.size(1),) * 2, 1e-3, device=aim.device)) for aim in aims]
    optimizers = [torch.optim.Adam([weight], lr=1e-3) for weight in maps]

    def outputs(h: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
        one = torch.where(near_one, h @ maps[0], h)
        two = second(F.relu(one), edges)
        return one, torch.where(near_two, two @ maps[1], two)

    left = torch.zeros_like(maps[0])
    for epoch in range(1, EPOCHS + 1):
        losses = []
        for h, aim, rows in zip(outputs(inputs, around), aims, (near_one, near_two), strict=True):
            kept = rows[:, 0] & others
            forget = F.mse_loss(h[ends.flatten()], aim[drawn.flatten()])
            losses.append(lam * forget + (1 - lam) * F.mse_loss(h[kept], aim[kept]))
        (maps[0].grad,) = torch.autograd.grad(losses[0], maps[:1], retain_graph=True)
        maps[0].grad += left
        left, maps[1].grad = torch.autograd.grad(losses[1], maps)
        for optimizer in optimizers:
            optimizer.step()
        if epoch % EVERY == 0:
            with torch.no_grad():
                yield epoch, outputs(served, remaining.edge_index)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="dblp")
    parser.add_argument("--model", default="gin", choices=["gcn", "gat", "gin"])
    parser.add_argument("--amount", type=float, nargs="+", default=[0.005, 0.025])
    parser.add_argument("--where", nargs="+", default=["in", "out"], choices=["in", "out"])
    parser.add_argument("--lam", type=float, default=0.5)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--epochs", type=at_least_one, default=2000, help="of the base model")
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    split = gd.datasets.split_links(gd.datasets.load(args.dataset), seed=args.seed)
    data, task = split.data.to(args.device), link_task(split, args.seed)
    torch.manual_seed(args.seed)
    model = gd.models.build(args.model, data.num_features).to(args.device)
    result = gd.train(model, data, task, epochs=args.epochs, seed=args.seed, validate_every=500, progress=True)
    model.eval().requires_grad_(False)
    print(f"{args.dataset}, {args.model}, seed {args.seed}: the base model is that of epoch {result.best_epoch}")
    for where in args.where:
        for amount in args.amount:
            chosen = gd.datasets.forget_edges(
                split.data, amount, where, test=split.test, hops="directed", seed=args.seed
            )
            deletion, deleted = gd.Deletion(edges=chosen), chosen.sort(dim=0).values.to(args.device)
            method = gd.GNNDelete.paper(hops="directed", lam=args.lam)
            solved = gd.Unlearner(model, data, task=task, method=method).delete(deletion)
            remaining = solved.data
            torch.manual_seed(args.seed)
            print(f"{amount:.1%} {where.upper()}: epoch, validation, test and deleted AUROC")
            found = []
            for epoch, z in (*trained(model, data, remaining, deleted, args.lam), ("paper()", solved.output())):
                pairs = [(part.positives, part.negatives) for part in (task.validation, task.test)]
                scores = [auroc(z, *pair) for pair in (*pairs, (remaining.edge_index, deleted))]
                found.append((scores[0] + scores[2], epoch))
                print(f"  {epoch!s:>8} {scores[0]:.3f} {scores[1]:.3f} {scores[2]:.3f}", flush=True)
            print(f"  the authors' rule keeps epoch {max(found[:-1])[1]}")


if __name__ == "__main__":
    main()
