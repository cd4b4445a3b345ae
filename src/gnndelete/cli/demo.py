"""``gnndelete demo``: the whole story on a graph that comes with scikit-learn, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.report import Report, note

if TYPE_CHECKING:
    from rich.console import Console

EPOCHS, AMOUNT, SEED = 300, 0.025, 0


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results.json, settings.yaml and the figure.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(hidden=True, min=1)] = EPOCHS,
    json: options.Json = False,
) -> Report:
    """Train a small link model, forget 2.5% of its edges in three ways, and compare with training again.

    Needs no network and no options; takes about half a minute on two cores.
    """
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(
        1
    )  # as quick as more on so small a graph, and several times quicker on a machine that is busy
    try:
        values = _run(out, epochs)
    finally:
        torch.set_num_threads(threads)
    return Report(values, lambda console: _show(console, values))


def _run(out: Path, epochs: int) -> dict[str, Any]:
    from gnndelete.cli import runs
    from gnndelete.cli.construct import build_model
    from gnndelete.cli.settings import resolve
    from gnndelete.cli.setup import prepare
    from gnndelete.datasets.forget import forget_edges
    from gnndelete.deletion import Deletion
    from gnndelete.errors import SettingError
    from gnndelete.evidence import evidence
    from gnndelete.methods import GNNDelete, Method, Retrain, Unlink
    from gnndelete.training import train
    from gnndelete.unlearner import Unlearner

    if out.exists() and not out.is_dir():
        raise SettingError(f"'{out}' is a file; give --out a folder")
    given = {
        "data.dataset": "digits",
        "train.epochs": epochs,
        "train.lr": 0.01,
        "train.seed": SEED,
        "deletion.random": AMOUNT,
    }
    settings = resolve(options=given)
    schedule = settings.train
    graph, task = prepare(settings)
    data = graph.data
    model = build_model(settings.model, data, "link", SEED).to(data.edge_index.device)
    note(f"training a GCN to predict the links of {data.num_nodes:,} images of digits, {epochs} epochs")
    trained = train(model, data, task, epochs=epochs, lr=schedule.lr, seed=SEED, progress=True)
    deletion = Deletion(edges=forget_edges(data, AMOUNT, seed=SEED))
    methods: dict[str, Method] = {
        "unlink": Unlink(),
        "gnndelete": GNNDelete(),
        "gnndelete paper": GNNDelete.paper(),
        "retrain": Retrain(epochs=epochs, lr=schedule.lr),
    }
    results = {}
    for name, method in methods.items():
        note(f"forgetting {deletion.edges.size(1)} training edges: {name}")
        results[name] = Unlearner(model, data, task, method, seed=SEED, progress=True).delete(deletion)

    remaining = results["unlink"].data
    assert remaining is not None
    rows: list[dict[str, Any]] = [
        {
            "name": "original",
            **evidence(model, data, task, deletion, remaining, seed=SEED),
            "seconds": trained.seconds,
            "parameters": sum(p.numel() for p in model.parameters()),
            "assurance": None,
        }
    ]
    for name, result in results.items():
        measured = result.evaluate()
        facts = {"seconds": result.seconds, "parameters": result.parameters, "assurance": result.assurance}
        rows.append({"name": name, **measured, **facts, "settings": result.settings})
    speedup = results["retrain"].seconds / results["gnndelete"].seconds
    values: dict[str, Any] = {
        "dataset": "digits",
        "deleted_edges": deletion.edges.size(1),
        "rows": rows,
        "speedup": speedup,
        "seed": SEED,
        "device": str(data.edge_index.device),
        "versions": runs.versions(),
    }
    networks = {
        "original": (model, data),
        "after GNNDelete": (results["gnndelete"].model, remaining),
        "retrained without them": (results["retrain"].model, remaining),
    }
    names = dict(zip(networks, ("original", "gnndelete", "retrain"), strict=True))
    by_name = {row["name"]: row for row in rows}
    captions = {
        title: f"test AUROC {by_name[name]['test_auroc']:.3f}, deleted AUROC {by_name[name]['deleted_auroc']:.3f}"
        for title, name in names.items()
    }
    figure = _figure(networks, task, deletion, remaining, captions)
    runs.commit(
        {
            out / "results.json": runs.to_bytes(values),
            out / "settings.yaml": settings.to_yaml().encode(),
            out / "scores.png": figure,
        }
    )
    return {"out": str(out), "figure": str(out / "scores.png"), **values}


def _figure(networks: dict[str, Any], task: Any, deletion: Any, remaining: Any, captions: dict[str, str]) -> bytes:
    from gnndelete.cli.figure import score_figure
    from gnndelete.evidence import positives
    from gnndelete.forward import call, evaluating

    kept = positives(remaining)
    pairs = {
        "remaining edges": kept[:, kept[0] < kept[1]],
        "held-out edges": task.test.positives,
        "deleted edges": deletion.edges,
        "random pairs": task.test.negatives,
    }
    panels = {}
    for title, (network, graph) in networks.items():
        with evaluating(network):
            output = call(network, graph)
            panels[title] = {
                kind: task.predict(network, output, edges).double().cpu().numpy() for kind, edges in pairs.items()
            }
    title = f"Forgetting {deletion.edges.size(1)} training edges of a link model: suppressed, or merely unseen?"
    return score_figure(panels, captions, title)


def _show(console: Console, values: dict[str, Any]) -> None:
    from rich.table import Table

    console.print(f"{values['deleted_edges']} training edges of digits, forgotten", style="bold")
    table = Table()
    table.add_column("", no_wrap=True)
    for column in ("test\nAUROC", "deleted\nAUROC\n(E_d)", "seconds", "parameters"):
        table.add_column(column, justify="right")
    table.add_column("assurance", no_wrap=True)
    for row in values["rows"]:
        numbers = (
            f"{row['test_auroc']:.3f}",
            f"{row['deleted_auroc']:.3f}",
            f"{row['seconds']:.3f}",
            f"{row['parameters']:,}",
        )
        table.add_row(row["name"], *numbers, row["assurance"] or "-")
    console.print(table)
    rows = {row["name"]: row for row in values["rows"]}
    lines = [
        f"gnndelete was {values['speedup']:.0f} times as fast as retraining, measured in this run "
        f"({rows['gnndelete']['seconds']:.3f} s against {rows['retrain']['seconds']:.2f} s).",
        "E_d says how surely deleted edges score below remaining ones. Alone it proves nothing: a ruined model "
        "reaches it too, so read it beside the test AUROC.",
        "GNNDelete suppresses: deleted edges get a low score and stand out by it, and edges close to them lose some "
        "too. Retraining makes deleted edges look merely unseen, like held-out ones "
        f"(E_d {rows['retrain']['deleted_auroc']:.2f}).",
        f"written to {values['out']}: scores.png, results.json, settings.yaml",
    ]
    console.print("\n".join(lines), markup=False)
