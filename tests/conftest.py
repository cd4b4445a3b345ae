"""One small graph and one table of models: every behaviour test runs on every model in it."""

from __future__ import annotations

import tests.processor  # noqa: F401

# isort: split
import copy
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, settings
from torch import Tensor, nn
from torch_geometric.data import Data
from torch_geometric.nn import (
    APPNP,
    GATConv,
    GATv2Conv,
    GCN2Conv,
    GCNConv,
    GINConv,
    GPSConv,
    GraphNorm,
    JumpingKnowledge,
    MessagePassing,
    SAGEConv,
    SGConv,
    TransformerConv,
)

import gnndelete as gd
from gnndelete.errors import RequestError

settings.register_profile("core", deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
settings.load_profile("core")

NODES, WIDTH, HIDDEN, OUT = 48, 6, 8, 5


def make_graph(seed: int = 0) -> Data:
    """A long thin undirected graph (so that neighbourhoods stay small), a triangle beside it and two isolated nodes."""
    generator = torch.Generator().manual_seed(seed)
    line = torch.arange(42)
    chords = torch.tensor([[0, 2, 5, 9, 14, 20, 27, 33], [2, 5, 7, 11, 16, 22, 29, 35]])
    triangle = torch.tensor([[43, 44, 43], [44, 45, 45]])
    once = torch.cat([torch.stack([line[:-1], line[1:]]), chords, triangle], dim=1)
    edges = torch.cat([once, once.flip(0)], dim=1)
    parts = torch.arange(NODES) % 4
    weight = 0.5 + torch.rand(once.size(1), generator=generator)
    attr = torch.randn(once.size(1), 3, generator=generator)
    return Data(
        x=torch.randn(NODES, WIDTH, generator=generator),
        edge_index=edges,
        edge_weight=torch.cat([weight, weight]),
        edge_attr=torch.cat([attr, attr]),
        y=torch.arange(NODES) % OUT,
        train_mask=parts < 2,
        val_mask=parts == 2,
        test_mask=parts == 3,
    )


class Stack(nn.Module):
    """Graph layers one after the other, ReLU and dropout between them."""

    def __init__(self, *convs: nn.Module) -> None:
        super().__init__()
        self.convs = nn.ModuleList(convs)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for index, conv in enumerate(self.convs):
            if index:
                x = F.dropout(F.relu(x), p=0.5, training=self.training)
            x = conv(x, edge_index)
        return x


class InPlace(nn.Module):
    """Changes what its layers returned in place, as many models do to save memory."""

    def __init__(self) -> None:
        super().__init__()
        self.skip = nn.Linear(WIDTH, HIDDEN)
        self.first, self.second = GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x, edge_index)
        h += self.skip(x)
        h.relu_()
        return self.second(h, edge_index)


class Attention(nn.Module):
    """A GAT whose layers return their attention beside the representation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GATConv(WIDTH, 4, heads=2), GATConv(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
        x, (_, alpha) = self.first(x, edge_index, return_attention_weights=True)
        x, _ = self.second(F.elu(x), edge_index, return_attention_weights=True)
        return x, alpha


class Jumping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([SAGEConv(WIDTH, HIDDEN), SAGEConv(HIDDEN, HIDDEN)])
        self.jump = JumpingKnowledge("cat")
        self.head = nn.Linear(2 * HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        seen = []
        for conv in self.convs:
            x = conv(x, edge_index).relu()
            seen.append(x)
        return self.head(self.jump(seen))


class OwnLayer(MessagePassing):
    """What a user writes: a layer this project has never seen."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(aggr="mean")
        self.own, self.other = nn.Linear(width, out), nn.Linear(2 * width, out)

    def forward(self, h: Tensor, edge_index: Tensor) -> Tensor:
        return self.own(h) + self.propagate(edge_index, h=h)

    def message(self, h_i: Tensor, h_j: Tensor) -> Tensor:
        return torch.tanh(self.other(torch.cat([h_i, h_j - h_i], dim=-1)))


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.convs = nn.ModuleList([GCNConv(HIDDEN, HIDDEN), GCNConv(HIDDEN, HIDDEN)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(HIDDEN), nn.BatchNorm1d(HIDDEN)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.embed(x)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + norm(conv(x, edge_index)).relu()
        return x


class Repeated(nn.Module):
    """One layer called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.conv = nn.Linear(WIDTH, HIDDEN), GCNConv(HIDDEN, HIDDEN)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.embed(x)
        for _ in range(3):
            x = torch.tanh(self.conv(x, edge_index))
        return x


class Tied(nn.Module):
    """One layer under several names."""

    def __init__(self) -> None:
        super().__init__()
        conv = SAGEConv(WIDTH, WIDTH)
        self.first = conv
        self.others = nn.ModuleList([conv, conv])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = torch.tanh(self.first(x, edge_index))
        return self.others[1](x, edge_index)


class Propagated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin, self.spread = nn.Linear(WIDTH, HIDDEN), APPNP(K=3, alpha=0.1)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.lin(x).relu(), edge_index)


class Simplified(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = SGConv(WIDTH, OUT, K=2)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.conv(x, edge_index)


class Transformer(nn.Module):
    """Local layers with attention over the whole graph: locality does not hold."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.blocks = nn.ModuleList([GPSConv(HIDDEN, GCNConv(HIDDEN, HIDDEN), heads=2) for _ in range(2)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, edge_index)
        return x


class Gated(MessagePassing):
    """A layer that returns a dict with two representations."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__(aggr="sum")
        self.value, self.gate = nn.Linear(width, out), nn.Linear(width, out)
        self.bias = nn.Parameter(torch.zeros(out))

    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Any]:
        h = self.propagate(edge_index, x=self.value(x)) + self.bias  # of the neighbours alone, not of the node itself
        return {"h": h, "gate": self.gate(x).sigmoid(), "edges": edge_index}


class Dicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Gated(WIDTH, HIDDEN), Gated(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> dict[str, Tensor]:
        inner = self.first(x, edge_index)
        outer = self.second(inner["h"].tanh() * inner["gate"], edge_index)
        return {"z": outer["h"] * outer["gate"]}


class Initial(nn.Module):
    """GCNII: every layer sees the first representation again."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, HIDDEN)
        self.convs = nn.ModuleList([GCN2Conv(HIDDEN, alpha=0.2, theta=0.5, layer=i + 1) for i in range(3)])

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = first = self.embed(x).relu()
        for conv in self.convs:
            x = conv(x, first, edge_index).relu()
        return x


class Normed(nn.Module):
    """GraphNorm between the layers: from there on every node sees every other."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = GCNConv(WIDTH, HIDDEN), GraphNorm(HIDDEN), GCNConv(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x, edge_index)).relu(), edge_index)


class Embedded(nn.Module):
    """Trainable node embeddings in place of features."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = nn.Embedding(NODES, HIDDEN)
        self.convs = nn.ModuleList([GCNConv(HIDDEN, HIDDEN), GCNConv(HIDDEN, OUT)])

    def forward(self, edge_index: Tensor) -> Tensor:
        x = self.convs[0](self.nodes.weight, edge_index).relu()
        return self.convs[1](x, edge_index)


class WholeGraph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Stack(GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, OUT))

    def forward(self, data: Data) -> Tensor:
        return self.inner(data.x, data.edge_index)


class Hidden(nn.Module):
    """Hides its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Stack(GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, OUT))

    def forward(self, *args: Tensor) -> Tensor:
        return self.inner(*args)


class Plain(nn.Module):
    """A graph network without PyG: its layers can only be named."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, OUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.spread(self.second(self.spread(self.first(x), edge_index).tanh()), edge_index)

    @staticmethod
    def spread(x: Tensor, edge_index: Tensor) -> Tensor:
        return x.index_add(0, edge_index[1], 0.3 * x[edge_index[0]])


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GCNConv(WIDTH, HIDDEN), GCNConv(HIDDEN, OUT)])

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = self.convs[0](x, edge_index, edge_weight).relu()
        return self.convs[1](x, edge_index, edge_weight)


class Attributed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList([GATConv(WIDTH, HIDDEN, edge_dim=3), GATConv(HIDDEN, OUT, edge_dim=3)])

    def forward(self, x: Tensor, edge_index: Tensor, *, edge_attr: Tensor) -> Tensor:
        x = self.convs[0](x, edge_index, edge_attr=edge_attr).relu()
        return self.convs[1](x, edge_index, edge_attr=edge_attr)


def tripled(_: nn.Module, __: Any, output: Tensor) -> Tensor:
    return 3 * output


def hooked() -> nn.Module:
    """A model with a forward hook of the user's own."""
    model = two(GCNConv)
    model.convs[0].register_forward_hook(tripled)
    return model


def two(conv: Callable[..., nn.Module], **options: Any) -> Stack:
    return Stack(conv(WIDTH, HIDDEN, **options), conv(HIDDEN, OUT, **options))


def gin() -> Stack:
    mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN))
    return Stack(GINConv(mlp, train_eps=True), GINConv(nn.Linear(HIDDEN, OUT)))


Expected = tuple[str, int, int | str | None, int]  # layer, call, key, hops


def usual(*names: str) -> tuple[Expected, ...]:
    return tuple((name, 0, None, index + 1) for index, name in enumerate(names))


CONVS = usual("convs.0", "convs.1")
ATTENTIONS = usual("layers.0.attention", "layers.1.attention")


@dataclass(frozen=True)
class Case:
    """A model, and what the library must find in it."""

    name: str
    build: Callable[[], nn.Module]
    sites: tuple[Expected, ...] = CONVS
    hops: int | None = 2  # of the output; None: it sees the whole graph
    layers: str | list[str] = "all"
    bounded: tuple[bool, ...] = ()  # per site, where not all are
    double: bool = False
    batches: bool = True  # whether the model can run on a part of the graph


MODELS = [
    Case("gcn", lambda: two(GCNConv)),
    Case("gat", lambda: Stack(GATConv(WIDTH, 4, heads=2), GATConv(HIDDEN, OUT))),
    Case("gat-tuples", Attention, (("first", 0, 0, 1), ("second", 0, 0, 2))),
    Case("gatv2", lambda: two(GATv2Conv)),
    Case("gin", gin),
    Case("sage-mean", lambda: two(SAGEConv)),
    Case("sage-max", lambda: two(SAGEConv, aggr="max")),
    Case("sage-jumping", Jumping),
    Case("own-layer", lambda: two(OwnLayer)),
    Case("batchnorm-residual", Residual),
    Case("in-place", InPlace, usual("first", "second")),
    Case("user-hook", hooked),
    Case("three-calls", Repeated, tuple(("conv", call, None, call + 1) for call in range(3)), 3),
    Case("tied", Tied, (("first", 0, None, 1), ("first", 1, None, 2))),
    Case("appnp", Propagated, (("spread", 0, None, 3),), 3),
    Case("sgc", Simplified, (("conv", 0, None, 2),)),
    Case("gcn-cached", lambda: two(GCNConv, cached=True)),
    Case("gps", Transformer, usual("blocks.0", "blocks.1"), None, bounded=(False, False), batches=False),
    *(
        Case(name, build, sites, None, bounded=(False, False), batches=False)
        for name, build, sites in (
            ("gps-encoder", lambda: gd.models.GPS(WIDTH, HIDDEN, OUT, heads=2, local="gin"), CONVS),
            ("gps-performer", lambda: gd.models.GPS(WIDTH, HIDDEN, OUT, heads=2, attention="performer"), CONVS),
            ("graphormer", lambda: gd.models.Graphormer(WIDTH, HIDDEN, OUT, heads=2, edge_dim=3), ATTENTIONS),
            ("graphormer-plain", lambda: gd.models.Graphormer(WIDTH, HIDDEN, OUT, heads=2, dropout=0.2), ATTENTIONS),
        )
    ),
    Case(
        "dicts",
        Dicts,
        (("first", 0, "h", 1), ("first", 0, "gate", 0), ("second", 0, "h", 2), ("second", 0, "gate", 1)),
    ),
    Case("transformer", lambda: two(TransformerConv)),
    Case("gcn2", Initial, usual("convs.0", "convs.1", "convs.2"), 3),
    Case("graphnorm", Normed, usual("first", "second"), None, bounded=(True, False), batches=False),
    Case("embedding", Embedded, batches=False),
    Case("forward-data", WholeGraph, usual("inner.convs.0", "inner.convs.1")),
    Case("forward-args", Hidden, usual("inner.convs.0", "inner.convs.1")),
    Case("plain", Plain, (("first", 0, None, 0), ("second", 0, None, 1)), 2, ["first", "second"]),
    Case("edge-weight", Weighted),
    Case("edge-attr", Attributed),
    Case("double", lambda: two(GCNConv), double=True),
]


@dataclass
class Subject:
    """A trained-looking model on its graph, and the deletion that the behaviour tests ask for."""

    case: Case
    model: nn.Module
    data: Data
    deletion: gd.Deletion = field(default_factory=lambda: gd.Deletion(edges=[(3, 4), (5, 7)]))

    def method(self, **settings: Any) -> gd.GNNDelete:
        return gd.GNNDelete(**{"layers": self.case.layers, **settings})

    def unlearner(self, method: Any = None, **options: Any) -> gd.Unlearner:
        return gd.Unlearner(self.model, self.data, method=method or self.method(), **options)

    def base(self) -> nn.Module:
        """The base model in evaluation mode, without a normalised graph kept from training."""
        model = copy.deepcopy(self.model).eval()
        for module in model.modules():
            if getattr(module, "cached", False):
                module.cached, module._cached_edge_index, module._cached_adj_t = False, None, None
        return model


def build_subject(case: Case) -> Subject:
    torch.manual_seed(7)
    data, model = make_graph(), case.build()
    if case.double:
        data.x, model = data.x.double(), model.double()
    with torch.no_grad():
        for parameter in model.parameters():  # no layer may be trivial: initial biases are zero
            parameter.normal_(0, 0.5)
        model.train()
        gd_forward(model, data)  # running statistics and caches get a content
    model.train()
    next(iter(model.children())).eval()  # flags differ within the model
    return Subject(case, model, data)


def gd_forward(model: nn.Module, data: Data) -> Any:
    from gnndelete.nn.forward import call

    return call(model, data)


@pytest.fixture(params=MODELS, ids=lambda case: case.name)
def subject(request: pytest.FixtureRequest) -> Subject:
    """Every model of the table in turn."""
    return build_subject(request.param)


@pytest.fixture
def make_subject() -> Callable[[str], Subject]:
    """One model of the table by its name."""
    return lambda name: build_subject(next(case for case in MODELS if case.name == name))


@pytest.fixture
def graph() -> Data:
    return make_graph()


class Silent(nn.Module):
    """A first layer that says nothing, whatever its edges; the second reads them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = GCNConv(6, 4), GCNConv(4, 3)
        nn.init.zeros_(self.first.lin.weight)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.first(x, edge_index) + x[:, :4], edge_index)


@pytest.fixture
def silent() -> nn.Module:
    return Silent()


@pytest.fixture
def gcn(graph: Data) -> nn.Module:
    return build_subject(MODELS[0]).model.eval()


@pytest.fixture
def tensors() -> Callable[[Any], list[Tensor]]:
    """All tensors in a model's output, whatever it is made of."""
    return flat


def flat(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        return [t for value in output.values() for t in flat(value)]
    return [t for value in output for t in flat(value)]


@pytest.fixture
def run() -> Callable[[nn.Module, Data], Tensor]:
    """The node representations a model gives on a graph, in evaluation mode and without gradients."""

    def representation(model: nn.Module, data: Data) -> Tensor:
        with torch.no_grad():
            return flat(gd_forward(model.eval(), data))[0]

    return representation


@pytest.fixture
def snapshot() -> Callable[[nn.Module, Data], dict[str, Any]]:
    """Everything of a user's model and data that a deletion must leave alone, in a form that `==` compares."""

    def take(model: nn.Module, data: Data) -> dict[str, Any]:
        return {
            "weights": {name: (id(value), digest(value)) for name, value in model.state_dict(keep_vars=True).items()},
            "gradients": {name: (p.requires_grad, p.grad is None) for name, p in model.named_parameters()},
            "modules": {
                name: (
                    type(m),
                    m.training,
                    sorted(vars(m)),
                    list(m._modules),
                    len(m._forward_hooks),
                    len(m._forward_pre_hooks),
                )
                for name, m in model.named_modules()
            },
            "data": {name: (id(value), digest(value)) for name, value in data.to_dict().items()},
        }

    def digest(value: Any) -> Any:
        if isinstance(value, Tensor):
            return str(value.dtype), tuple(value.shape), value.detach().reshape(-1).tolist()
        return repr(value)

    return take


def one_sentence(error: BaseException, *needles: str) -> None:
    """Assert that an error about a bad request is one short sentence with some words in it."""
    text = str(error)
    assert isinstance(error, RequestError)
    assert error.exit_code == 2
    assert "\n" not in text
    assert len(text) < 320
    for needle in needles:
        assert needle in text, text


@pytest.fixture
def at_once() -> Iterator[Callable[[Callable[[int], object], int], None]]:
    """Runs ``work(seed)`` so many times in each of eight threads, which are switched often; raises the first error."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)

    def run(work: Callable[[int], object], times: int) -> None:
        with ThreadPoolExecutor(8) as threads:
            chunks = [threads.submit(lambda k=k: [work(8 * i + k) for i in range(times)]) for k in range(8)]
        for chunk in chunks:
            chunk.result()

    yield run
    sys.setswitchinterval(before)
