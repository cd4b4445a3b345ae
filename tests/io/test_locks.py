"""Locks that a forked child does not inherit as held, and what holds them: an unlearner in a child of a busy process."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from threading import Event, RLock, Thread

import pytest

from gnndelete.io.locks import ProcessLocks


def test_one_thread_at_a_time_and_again_in_the_same(at_once):
    locks, inside = ProcessLocks(RLock), []

    def work(seed):
        with locks[os.getpid()], locks[os.getpid()]:
            inside.append(seed)
            assert len(inside) == 1
            inside.clear()

    at_once(work, 50)


def test_copies_and_pickles_are_free():
    locks = ProcessLocks(RLock)
    with locks[os.getpid()]:
        for other in (copy.deepcopy(locks), pickle.loads(pickle.dumps(locks))):
            thread = Thread(target=other[os.getpid()].__enter__, daemon=True)
            thread.start()
            thread.join(5)
            assert not thread.is_alive()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_finds_it_free():
    locks, held, done = ProcessLocks(RLock), Event(), Event()

    def hold():
        with locks[os.getpid()]:
            held.set()
            done.wait(30)

    thread = Thread(target=hold)
    thread.start()
    held.wait(30)
    child = os.fork()
    if child == 0:  # a child that hangs is killed by the alarm
        import signal

        signal.alarm(20)
        with locks[os.getpid()]:
            os._exit(0)
    status = os.waitpid(child, 0)[1]
    done.set()
    thread.join()
    assert status == 0


CHILDREN = """
import multiprocessing, sys, threading
import torch
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
import gnndelete as gd

def ask(unlearner, edges, queue):
    torch.set_num_threads(1)
    queue.put(unlearner.delete(gd.Deletion(edges=edges)).output().sum().item())

if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.manual_seed(0)
    nodes = torch.arange(60)
    ring = torch.stack([nodes, nodes.roll(1)])
    data = Data(x=torch.randn(60, 4), edge_index=torch.cat([ring, ring.flip(0)], dim=1))
    model = GCNConv(4, 3)
    make = lambda: gd.Unlearner(model, data, method=gd.GNNDelete(lam=0.3))
    context, busy, ends = multiprocessing.get_context(sys.argv[1]), make(), threading.Event()
    def work():
        while not ends.is_set():
            busy.compact() if busy.history else busy.delete(gd.Deletion(edges=[(0, 59)]))
    busy.delete(gd.Deletion(edges=[(0, 59)]))
    both = make()
    both.delete(gd.Deletion(edges=[(0, 59)]))
    expected = both.delete(gd.Deletion(edges=[(7, 6)])).output().sum().item()
    threads = [threading.Thread(target=work)]
    for thread in threads:
        thread.start()
    found = []
    for _ in range(int(sys.argv[2])):
        queue = context.SimpleQueue()
        child = context.Process(target=ask, args=(busy, [(7, 6)], queue))
        child.start()
        if sys.argv[1] == "spawn":  # it got all it needs
            ends.set()
        child.join(90)
        if child.is_alive():
            child.kill()
            found.append("hangs")
        else:
            found.append(queue.get() if not child.exitcode else f"exit {child.exitcode}")
    ends.set()
    for thread in threads:
        thread.join()
    assert all(value == expected for value in found), (found, expected)
"""


@pytest.mark.parametrize(("start", "children"), [("fork", 3), ("spawn", 1)])
def test_children_of_a_process_that_is_deleting_can_delete(start, children, tmp_path):
    script = tmp_path / "children.py"
    script.write_text(CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, script, start, str(children)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
