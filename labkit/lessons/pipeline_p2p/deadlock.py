"""Find the deadlock in a set of programs before it hangs: a cycle in what waits for what."""

from collections.abc import Sequence

import networkx as nx

from labkit.lessons.pipeline_p2p.dependencies import Waits, waits
from labkit.lessons.pipeline_p2p.pipeline import Channel, Program, Transfer

__all__ = ["Deadlock", "explain", "find_cycle", "find_deadlock"]


class Deadlock(Exception):
    """Programs that can never end; the message walks once around the cycle."""


def find_cycle(after: Waits) -> list:
    """Return the shortest cycle of nodes that wait for each other, [] when there is none.

    Each node waits for the one after it, the last for the first.
    """
    graph = nx.DiGraph()
    graph.add_edges_from((node, before) for node, befores in after.items() for before in befores)
    best: list = []
    for component in nx.strongly_connected_components(graph):
        if len(component) == 1 and not graph.has_edge(*(2 * tuple(component))):
            continue
        part = graph.subgraph(component)
        for node in sorted(component, key=str):
            for before in part.successors(node):
                path = nx.shortest_path(part, before, node)
                if not best or len(path) < len(best):
                    best = [node, *path[:-1]]
    return best


def explain(cycle: Sequence, *, after: Waits) -> str:
    """Put a cycle into words, one line per step.

    >>> print(explain(cycle, after=after))                          # doctest: +SKIP
    F1 0→1 waits for B0 1→0: rank 1 does it first
    B0 1→0 waits for F1 0→1: rank 0 does it first
    """
    pairs = zip(cycle, [*cycle[1:], *cycle[:1]], strict=True)
    return "\n".join(f"{_name(a)} waits for {_name(b)}: {after[a][b]}" for a, b in pairs)


def find_deadlock(ranks: Sequence[Program], *, channel: Channel) -> str:
    """Return the words for a deadlock of these programs on this channel, "" when there is none."""
    after = waits(ranks, channel=channel)
    return explain(find_cycle(after), after=after)


def _name(node: object) -> str:
    return str(node) if isinstance(node, Transfer) else f"{node} of stage {node.stage}"
