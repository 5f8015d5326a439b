"""Tests of pairs of hosts: two speeds or one, and which rule the slow pairs follow.

A median is no "usual" where there are two speeds: with half of the pairs slow it is itself a slow
one. So the speeds are divided at their widest gap first, and then it is asked which hosts explain
who is slow: pairs with *either* of some hosts (a bad host, card or port), pairs with *exactly one*
of them (two groups that do not match: rails, switches or settings that differ), or pairs of *both*
(what they share is slow). A rule is a description of what was measured, not its cause.
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

Pair = frozenset[str]
GAP = 1.25  # two speeds, if the fast ones begin at this multiple of where the slow ones end
LUCK = 1e-3
"""A smaller gap counts where a rule is right for all pairs that luck gives less often than this."""
WRONG = 0.2
"""A rule is named if it is wrong for at most this many pairs, as a share of the rarer speed's."""
_FEWEST = 3
_RULES = {"either": (1, -1), "exactly one": (1, -2), "both": (0, 1)}
"""Which pairs are slow: one * (x + y) + two * x * y of them, x and y telling whether the first and
the second host is in the set."""


@dataclass(frozen=True, slots=True)
class Rule:
    """Pairs are slow if `which` of their hosts are in the set, and else not."""

    which: str
    hosts: tuple[str, ...]
    right: int  # how many pairs it is right for
    of: int

    def calls_slow(self, pair: Pair) -> bool:
        """Whether the rule calls a pair slow."""
        members = len(pair & set(self.hosts))
        if self.which == "either":
            return members > 0
        return members == (1 if self.which == "exactly one" else 2)

    def __str__(self) -> str:
        names = ", ".join(self.hosts[:12])
        names += f" and {len(self.hosts) - 12} more" if self.hosts[12:] else ""
        words = {
            "either": f"slow where {names} take part",
            "exactly one": f"slow where exactly one of the two hosts is of {names}: two groups",
            "both": f"slow where both hosts are of {names}",
        }
        return f"{words[self.which]} (right for {self.right} of {self.of} pairs)"


def of(hosts: Iterable[str]) -> Pair | None:
    """Return two hosts as a pair; None if there are more, or one."""
    pair = frozenset(hosts)
    return pair if len(pair) == 2 else None


def divide(values: Iterable[float], gap: float = GAP) -> float | None:
    """Return what lies between two speeds: the middle of their widest gap; None if there is one.

    On either side there are three values at least, or one in thirty.

    Example:
        >>> divide([5.1, 6.2, 7.4, 23.5, 23.6, 23.6])
        13.18...
    """
    rising = np.sort([value for value in values if value > 0])
    few = max(_FEWEST, len(rising) // 30)
    if len(rising) < 2 * few:
        return None
    inner = rising[few - 1 : len(rising) - few + 1]  # a gap leaves so few at least on either side
    at = int(np.argmax(inner[1:] / inner[:-1]))
    slow, fast = inner[at], inner[at + 1]
    return float(np.sqrt(slow * fast)) if fast >= gap * slow else None


def two_speeds(busbw: Mapping[Pair, float]) -> tuple[float | None, Rule | None]:
    """Return what lies between the two speeds of pairs, and the rule of the slow ones.

    None and None if there is one speed. Where the gap is below `GAP`, a rule that is right for all
    pairs is asked for: of n hosts there are about 3 * 2**n rules, and each divides the pairs in one
    way out of all that make as many of them slow.
    """
    limit = divide(busbw.values(), gap=1.0)
    if limit is None:
        return None, None
    slow = {pair: speed < limit for pair, speed in busbw.items()}
    rule = explain(slow)
    if divide(busbw.values()) is None:
        hosts, ways = len(set().union(*busbw)), math.comb(len(slow), sum(slow.values()))
        if not rule or rule.right < rule.of or 3 * 2**hosts > LUCK * ways:
            return None, None
    return limit, rule


def explain(slow: Mapping[Pair, bool]) -> Rule | None:
    """Return the rule that is right for most pairs, of equal ones the one with fewest hosts.

    None if none is good enough (`WRONG`), or if all pairs are alike. It takes memory and, for each
    host that moves, time in proportion to the square of the hosts.
    """
    hosts = sorted(set().union(*slow))
    index = {host: i for i, host in enumerate(hosts)}
    weights = np.zeros((len(hosts), len(hosts)), dtype=np.float32)
    for pair, truth in slow.items():
        a, b = (index[host] for host in pair)
        weights[a, b] = weights[b, a] = 1 if truth else -1
    ours = sum(slow.values())
    if ours in (0, len(slow)):
        return None
    rules = []
    for which in _RULES:
        chosen, right = _climb(weights, which)
        right += len(slow) - ours  # a set of no hosts calls all pairs fast
        if which == "exactly one":  # a set and the others are the same rule
            chosen[:, 2 * chosen.sum(axis=0) > len(hosts)] ^= True
        sizes = chosen.sum(axis=0)
        at = int(np.lexsort((sizes, -right))[0])
        names = tuple(itertools.compress(hosts, chosen[:, at]))
        rules.append(Rule(which, names, int(right[at]), len(slow)))
    rule = max(rules, key=lambda rule: (rule.right, -len(rule.hosts)))
    rarer = min(ours, len(slow) - ours)
    return rule if rule.hosts and rule.of - rule.right <= WRONG * rarer else None


def _climb(weights: np.ndarray, which: str) -> tuple[np.ndarray, np.ndarray]:
    """Move one host in or out of a set, whichever helps most, until none helps; from many starts.

    `weights` is 1 for a slow pair, -1 for a fast one, 0 for one that was not tested. What a set x
    gains over no hosts is the sum of the weights of the pairs that its rule calls slow,
    ``one * w.x + two / 2 * x.W.x`` with w the sums of W's rows: so moving a host changes it by
    ``one * w + two * W.x``, and only W.x has to be kept.

    Returns:
        A column for each start (no hosts, and each host alone), and what each gains.
    """
    one, two = _RULES[which]
    n = len(weights)
    chosen = np.concatenate([np.zeros((n, 1), dtype=bool), np.eye(n, dtype=bool)], axis=1)
    sums = weights.sum(axis=1)
    inside = np.concatenate([np.zeros((n, 1), dtype=np.float32), weights], axis=1)  # W.x
    moving = np.arange(n + 1)
    while len(moving):
        mine = chosen[:, moving]
        gains = np.where(mine, -1, 1) * (one * sums[:, None] + two * inside[:, moving])
        host = gains.argmax(axis=0)
        better = gains[host, np.arange(len(moving))] > 0
        moving, host = moving[better], host[better]
        step = np.where(chosen[host, moving], -1, 1)
        inside[:, moving] += weights[:, host] * step
        chosen[host, moving] ^= True
    inner = (chosen * inside).sum(axis=0) / 2
    return chosen, (one * (sums @ chosen) + two * inner).round().astype(int)
