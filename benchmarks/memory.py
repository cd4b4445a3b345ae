"""Peak memory of a deletion beside that of a plain forward pass, on a generated graph of OGB-Collab's size.

    python benchmarks/memory.py

On the CPU each number is the peak resident memory of a process of its own that did just that; `loaded` is what the
process holds before (interpreter, libraries, graph, model). On CUDA it is the allocator's own peak.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys

import torch
from options import device_name

import gnndelete as gd
from gnndelete.datasets.generated import community_graph
from gnndelete.nn.forward import call, evaluating


def measure(what: str, args: argparse.Namespace) -> dict[str, float]:
    data = community_graph(args.nodes, args.edges, args.features, seed=0).to(args.device)
    torch.manual_seed(0)
    model = gd.models.build(args.model, args.features).to(args.device)
    request = gd.Deletion(edges=gd.datasets.forget_edges(data, args.delete, seed=0))
    cuda = torch.device(args.device).type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    loaded = torch.cuda.memory_allocated() if cuda else _resident()
    if what == "forward":
        with evaluating(model):
            call(model, data)
    else:
        gd.Unlearner(model, data, method=gd.GNNDelete.paper() if what == "paper()" else gd.GNNDelete(lam=0.5)).delete(
            request
        )
    peak = torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"loaded": loaded / 2**20, "peak": peak / 2**20}


def _resident() -> float:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=235_868)
    parser.add_argument("--edges", type=int, default=2_358_104)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--delete", type=float, default=0.025)
    parser.add_argument("--device", type=device_name, default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", default=None, help="measure one thing in this process and print it as JSON")
    args = parser.parse_args()
    if args.only:
        print(json.dumps(measure(args.only, args)))
        return
    peaks = {}
    for what in ("forward", "gnndelete", "paper()"):
        done = subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--only", what], check=True, stdout=subprocess.PIPE
        )
        peaks[what] = json.loads(done.stdout)
    base = peaks["forward"]
    print(f"{args.model}, {args.nodes:,} nodes, {args.edges:,} edges, {args.delete:.1%} deleted, {args.device}")
    for what, found in peaks.items():
        extra = (found["peak"] - found["loaded"]) / (base["peak"] - base["loaded"])
        print(
            f"  {what:<12} loaded {found['loaded']:>8,.0f} MB   peak {found['peak']:>8,.0f} MB   "
            f"{found['peak'] / base['peak']:.2f} x the forward pass ({extra:.2f} x counting only what it adds)"
        )


if __name__ == "__main__":
    main()
