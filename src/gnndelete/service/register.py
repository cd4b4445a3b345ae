"""A trained model becomes a model of the service."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import torch
from torch import nn

from gnndelete.datasets import NamedGraph
from gnndelete.graph.kinds import in_words
from gnndelete.service import schema as t
from gnndelete.service.crypto import digest
from gnndelete.service.errors import ServiceError
from gnndelete.service.folders import Changes
from gnndelete.service.lifecycle import Service, check_name
from gnndelete.service.solver import first_generation, software
from gnndelete.tasks import Task


def register(
    service: Service,
    name: str,
    model: nn.Module,
    graph: NamedGraph,
    task: Task,
    training: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    tenant: str = "default",
) -> dict[str, Any]:
    """Register a trained model: copy it into the home of the service, rehearse, and serve it.

    Args:
        service: The service.
        name: The name under which it is served.
        model: The trained model.
        graph: The graph it was trained on, with the names of its nodes.
        task: What it was trained for.
        training: How new weights are made: ``schedule`` (arguments of `gnndelete.train`) or ``fit`` (``file.py:function``), and
            ``build`` with the ``name`` and the ``options`` of a factory ``file.py:make``, where a copy cannot be drawn again.
        settings: Settings of `gnndelete.GNNDelete`; lam is rehearsed where they leave it open.
        tenant: Whose keys may use it.

    Returns:
        What was registered, as plain values.

    Raises:
        ServiceError: If the name is taken or not allowed, or the graph holds what was deleted before.
    """
    check_name(name, "the name of a model")
    check_name(tenant, "the name of a tenant")
    folder = service.folder(tenant, name)
    with service.home.locked():
        with service.storage.reading() as records:
            if records.model(tenant, name) is not None:
                raise ServiceError("name-taken", f"there is a model '{name}' already", "choose another name")
        if found := service.tombstones(tenant).find(graph).counts:
            raise ServiceError(
                "deleted-before",
                f"the graph holds {', '.join(in_words(found))} that were deleted before, and the model may have learned them",
                f"train on a graph without them: gnndelete train --tombstones {service.home.path}",
            )
        made = first_generation(model, graph, task, training or {}, settings)
        if folder.path.exists():  # of a registration that was killed
            shutil.rmtree(folder.path)
        with folder.writing():
            manifest = folder.add_generation(made)
            now, graph_digest = service.clock.now(), manifest["graph"]
            version = folder.add_version(
                0,
                [],
                Changes({}, torch.empty(0, dtype=torch.long)),
                {
                    "kind": "base",
                    "generation": manifest["number"],
                    "base": manifest["base"],
                    "chain": [],
                    "previous": None,
                    "requests": [],
                    "solved": [],
                    "graph": {"before": graph_digest, "after": graph_digest},
                    "facts": {"weights": "base", "software": software()},
                    "at": now,
                },
            )
            folder.switch(0, None)
        row = t.Model(
            id=uuid4().hex,
            tenant=tenant,
            name=name,
            elements=made.facts["nodes"] + made.facts["edges"],
            created=now,
            compacted=now,
            regrown=now,
            fence=0,
        )
        with service.storage.writing() as records:
            records.add(row)
            facts = {"chain": [], "weights": "base"}
            records.add(
                t.Version(
                    model_id=row.id,
                    number=0,
                    generation=manifest["number"],
                    kind="base",
                    digest=digest(version),
                    requests=0,
                    at=now,
                    facts=facts,
                )
            )
            service.add_leaves(records, [bytes.fromhex(digest(version))])
    service.changed()
    names = ("base", "graph", "local", "not_local", "settings", "damage", "nodes", "edges")
    return {"name": name, "tenant": tenant, **{each: manifest[each] for each in names}}
