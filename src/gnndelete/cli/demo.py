"""``gnndelete demo``: the whole story on a graph that comes with scikit-learn, without a network."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gnndelete.cli import options
from gnndelete.cli.output import Report, note, table

if TYPE_CHECKING:
    from rich.console import Console

EPOCHS, AMOUNT, SEED = 300, 0.025, 0

#: Panels of the figure: the name of a model and the title of its panel.
_PANELS = {
    "original": "original",
    "gnndelete": "gnndelete: as if retrained",
    "gnndelete nonexistent": "gnndelete: as if nonexistent",
    "retrain": "retrained without them",
}


def demo(
    out: Annotated[Path, typer.Option(help="Folder for report.html, the figure, results and settings.")] = Path("demo"),
    epochs: Annotated[int, typer.Option(hidden=True, min=1)] = EPOCHS,
    json: options.Json = False,
) -> Report:
    """Train a small link model, forget 2.5% of its edges by several methods, compare with retraining, and audit it.

    Needs no network and no options; takes less than a minute on two cores.
    """
    import torch

    threads = torch.get_num_threads()
    # One thread is as fast as more on so small a graph, and several times faster on a busy machine.
    torch.set_num_threads(1)
    try:
        values = _run(out, epochs)
    finally:
        torch.set_num_threads(threads)
    return Report(values, lambda console: _show(console, values))


def _run(out: Path, epochs: int) -> dict[str, Any]:
    from gnndelete.auditing import audit
    from gnndelete.cli.construct import prepare, start_model
    from gnndelete.cli.run_folder import check_folder, provenance, to_bytes
    from gnndelete.cli.settings import resolve
    from gnndelete.datasets.forget import forget_edges
    from gnndelete.graph.deletion import Deletion
    from gnndelete.io import files
    from gnndelete.methods import GNNDelete, Method, Retrain, Unlink
    from gnndelete.metrics.unseen_test import degrees, edge_strata, unseen_test
    from gnndelete.result import evidence
    from gnndelete.training.loop import train
    from gnndelete.unlearner import Unlearner

    check_folder(out, "results.json")
    files.require_writable(out)
    chosen = {
        "data.dataset": "digits",
        "train.epochs": epochs,
        "train.lr": 0.01,
        "train.seed": SEED,
        "deletion.random": AMOUNT,
    }
    settings = resolve(options=chosen)
    lr = settings.train.lr
    graph, task = prepare(settings)
    data = graph.data
    model = start_model(settings, graph)
    note(f"training a GCN to predict the links of {data.num_nodes:,} images of digits, {epochs} epochs")
    trained = train(model, data, task, epochs=epochs, lr=lr, seed=SEED, progress=True)
    deletion = Deletion(edges=forget_edges(data, AMOUNT, seed=SEED))
    methods: dict[str, Method] = {
        "unlink": Unlink(),
        "gnndelete": GNNDelete(),
        "gnndelete nonexistent": GNNDelete(aim="nonexistent"),
        "gnndelete paper": GNNDelete.paper(),
        "retrain": Retrain(epochs=epochs, lr=lr),
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
            "weights": None,
        }
    ]
    for name, result in results.items():
        facts = {
            "seconds": result.seconds,
            "parameters": result.parameters,
            "assurance": result.assurance,
            "weights": result.weights,
        }
        rows.append({"name": name, **result.evaluate(), **facts, "settings": result.settings, "lam": result.lam})
    scores = {"original": _scores(model, data, task, deletion, remaining)}
    scores |= {name: _scores(result.model, remaining, task, deletion, remaining) for name, result in results.items()}
    strata = edge_strata(degrees(remaining).cpu(), deletion.edges.cpu(), task.unseen(data, "test").cpu())
    for row in rows:
        kinds = scores[row["name"]]
        row["unseen_auc"] = unseen_test(kinds["deleted"], kinds["unseen"], **strata).auc
    note("auditing gnndelete against retrain, with a shadow model to train for the attacks")
    audited = audit(results["gnndelete"], results["retrain"], seed=SEED, progress=True)
    values: dict[str, Any] = {
        "dataset": "digits",
        "deleted_edges": deletion.edges.size(1),
        "rows": rows,
        "speedup": results["retrain"].seconds / results["gnndelete"].seconds,
        "calibration": next((n.text for n in results["gnndelete"].notes if n.code == "calibration"), None),
        "verdict": audited.to_dict()["verdict"],
        "seed": SEED,
        "device": str(data.edge_index.device),
        "versions": provenance()["software"],
    }
    note("drawing")
    files.commit(
        {
            out / "report.html": audited.to_html().encode(),
            out / "results.json": to_bytes(values),
            out / "settings.yaml": settings.to_yaml(folder=out).encode(),
            out / "scores.png": _figure(scores, rows),
        }
    )
    return {"out": str(out), "figure": str(out / "scores.png"), "report": str(out / "report.html"), **values}


def _scores(network: Any, graph: Any, task: Any, deletion: Any, remaining: Any) -> dict[str, Any]:
    """The scores that a model gives four kinds of node pairs."""
    from gnndelete.nn.forward import call, evaluating

    learned = task.learned(remaining)
    pairs = {
        "remaining": learned[:, learned[0] < learned[1]],
        "unseen": task.test.positives,
        "deleted": deletion.edges,
        "random": task.test.negatives,
    }
    with evaluating(network):
        output = call(network, graph)
        return {kind: task.predict(network, output, edges).double().cpu() for kind, edges in pairs.items()}


def _figure(scores: dict[str, dict[str, Any]], rows: list[dict[str, Any]]) -> bytes:
    """A PNG with one panel per model; each holds the distribution of the scores of each kind of pair."""
    import numpy as np

    from gnndelete.auditing.report.figures import Panel, distributions, drawn

    shown = {name: {kind: values.tolist() for kind, values in scores[name].items()} for name in _PANELS}
    ends = [np.quantile(values, [0.005, 0.995]) for kinds in shown.values() for values in kinds.values()]
    low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
    limits = (low - 0.04 * (high - low), high + 0.04 * (high - low))
    by_name, axis = {row["name"]: row for row in rows}, "score of a pair of nodes (logit); dashed: median"
    made = []
    for name, title in _PANELS.items():
        facts = f"test AUROC {by_name[name]['test_auroc']:.3f}, unseen AUC {by_name[name]['unseen_auc']:.3f}"
        made.append(Panel(f"{title}\n{facts}", title, distributions(shown[name], limits, axis)))
    heading = f"Forgetting {len(shown['original']['deleted'])} training edges of a link model: unseen, or suppressed?"
    return drawn(made, "png", heading)


def _show(console: Console, values: dict[str, Any]) -> None:
    console.print(f"{values['deleted_edges']} training edges of digits, forgotten", style="bold")
    scores = ("test_auroc", "unseen_auc", "deleted_auroc", "seconds")
    shown = [
        (row["name"], *(f"{row[key]:.3f}" for key in scores), row["assurance"] or "-", row["weights"] or "-")
        for row in values["rows"]
    ]
    console.print(table(("", "test\nAUROC", "unseen\nAUC", "deleted\nAUROC", "seconds", "assurance", "weights"), shown))
    rows = {row["name"]: row for row in values["rows"]}
    deleted = {name: row["deleted_auroc"] for name, row in rows.items()}
    verdict = values["verdict"]
    seconds, retraining = (rows[name]["seconds"] for name in ("gnndelete nonexistent", "retrain"))
    lines = [
        "Unseen AUC: deleted edges against edges the model never saw. At 0.5 they look alike. Above it the model still "
        f"knows them, below it they stand out as suppressed. Retraining reaches {rows['retrain']['unseen_auc']:.2f}.",
        "Deleted AUROC (E_d in the paper): remaining edges score above deleted ones. A ruined model reaches a high value "
        "too, so read it together with the test AUROC.",
        "gnndelete chooses how strongly to forget on validation edges; the table is measured on test edges. "
        f"{values['calibration'] or ''}".strip(),
        f"Suppression (nonexistent, paper) reaches a higher deleted AUROC ({deleted['gnndelete nonexistent']:.2f}, "
        f"{deleted['gnndelete paper']:.2f}) than retraining ({deleted['retrain']:.2f}), and can be recognised by it. "
        "After retraining, deleted edges are merely unseen.",
        f"gnndelete nonexistent, which solves for operators, was {retraining / seconds:.0f} times as fast as retraining "
        f"({seconds:.3f} s against {retraining:.2f} s), its calibration included.",
        f"The audit of gnndelete: {verdict['title']}. {verdict['text']}",
        f"Written to {values['out']}: report.html (the audit), scores.png, results.json, settings.yaml",
    ]
    console.print("", "\n\n".join(lines), sep="\n", markup=False)
