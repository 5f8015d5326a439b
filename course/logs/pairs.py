"""Tests of pairs of hosts: two speeds or one, and which rule the slow pairs follow.

A median is no "usual" where there are two speeds: with half of the pairs slow it is itself a slow
one. So the speeds are divided at their widest gap first, and then it is asked which hosts explain
who is slow: pairs with *either* of some hosts (a bad host, card or port), pairs with *exactly one*
of them (two groups that do not match: rails, switches or settings that differ), or pairs of *both*
(what they share is slow). A rule is a description of what was measured, not its cause.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Pair = frozenset[str]
GAP = 1.25
"""Two speeds, if the fast ones begin at this multiple of where the slow ones end."""
WRONG = 0.2
"""A rule is named if it is wrong for at most this many pairs, as a share of the rarer speed's."""
_FEWEST = 3
_RULES: dict[str, Callable[[int], bool]] = {
    "either": lambda members: members > 0,
    "exactly one": lambda members: members == 1,
    "both": lambda members: members == 2,
}
"""Which pairs are slow, by how many of the two hosts are in the set."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Pairs are slow if `which` of their hosts are in the set, and else not."""

    which: str
    hosts: tuple[str, ...]
    right: int
    """How many pairs it is right for."""
    of: int

    def __str__(self) -> str:
        names = ", ".join(self.hosts)
        words = {
            "either": f"slow where {names} take part",
            "exactly one": f"slow where exactly one of the two hosts is of {names}: two groups",
            "both": f"slow where both hosts are of {names}",
        }
        return f"{words[self.which]} (right for {self.right} of {self.of} pairs)"


def divide(values: Iterable[float]) -> float | None:
    """Return what lies between two speeds: the middle of their widest gap; None if there is one.

    On either side there are three values at least, or one in thirty.

    Example:
        >>> divide([5.1, 6.2, 7.4, 23.5, 23.6, 23.6])
        13.2
    """
    ordered = np.sort(np.fromiter(values, dtype=float))
    ordered = ordered[ordered > 0]
    few = max(_FEWEST, len(ordered) // 30)
    if len(ordered) < 2 * few:
        return None
    ratios = ordered[few : -few + 1 or None][: len(ordered) - 2 * few + 1] / ordered[few - 1 : -few]
    at = int(np.argmax(ratios)) + few
    if ordered[at] < GAP * ordered[at - 1]:
        return None
    return round(float(np.sqrt(ordered[at] * ordered[at - 1])), 1)


def explain(slow: Mapping[Pair, bool]) -> Rule | None:
    """Return the rule that is right for most pairs, of equal ones the one with fewest hosts.

    None if none is good enough (`WRONG`), or if all pairs are alike.
    """
    hosts = sorted(set().union(*slow))
    index = {host: i for i, host in enumerate(hosts)}
    pairs = np.array([[index[host] for host in sorted(pair)] for pair in slow]).reshape(-1, 2)
    truth = np.array(list(slow.values()), dtype=bool)
    if truth.all() or not truth.any():
        return None
    rules = []
    for which, member in _RULES.items():
        table = np.array([member(n) for n in range(3)])
        for start in range(-1, len(hosts)):
            chosen = _climb(np.arange(len(hosts)) == start, pairs, truth, table)
            if which == "exactly one" and 2 * chosen.sum() > len(hosts):
                chosen = ~chosen  # the same rule
            right = int((table[chosen[pairs].sum(axis=1)] == truth).sum())
            names = tuple(itertools.compress(hosts, chosen))
            rules.append((right, -len(names), Rule(which, names, right, len(pairs))))
    best = max(rules, key=lambda one: one[:2])[2]
    rarer = min(truth.sum(), len(truth) - truth.sum())
    return best if best.hosts and best.of - best.right <= WRONG * rarer else None


def _climb(chosen: np.ndarray, pairs: np.ndarray, truth: np.ndarray, table: np.ndarray):
    """Move one host in or out of the set, whichever helps most, until none helps."""

    def right(candidate: np.ndarray) -> int:
        return int((table[candidate[pairs].sum(axis=1)] == truth).sum())

    best = right(chosen)
    while True:
        flips = [chosen ^ (np.arange(len(chosen)) == host) for host in range(len(chosen))]
        scores = [right(flip) for flip in flips]
        if max(scores) <= best:
            return chosen
        best = max(scores)
        chosen = flips[scores.index(best)]
