"""Answers to the exercises of lesson 08, right and wrong. Ranks import this: it needs no pytest."""

import torch
import torch.distributed as dist
from torch.distributed import all_reduce as total

from course.lessons.casebook import on_links, programs

# --- 8.1

me = dist.get_rank


def number(a, b):
    return min(a, b) % 2, min(a, b), max(a, b)


def bubble(peers):
    left, order = set(peers), []
    while left:
        nearest = min(left, key=lambda peer: me() ^ peer)
        left.remove(nearest)
        order.append(nearest)
    return order


RIGHT_ORDERS = {
    "xor": lambda peers: sorted(peers, key=lambda peer: me() ^ peer),
    "even pairs first": lambda peers: sorted(peers, key=lambda peer: number(me(), peer)),
    "the nearest again and again": bubble,
}
WRONG_ORDERS = {
    "by rank": (sorted, "a queue"),
    "downwards": (lambda peers: sorted(peers, reverse=True), "a queue"),
    "as given": (lambda peers: peers, "a circle"),
    "as in the list, sorted by half": (
        lambda peers: sorted(peers, key=lambda peer: peer // 4),
        "a queue",
    ),
    "the next one first": (
        lambda peers: sorted(peers, key=lambda peer: (peer - me()) % 8),
        "a circle",
    ),
    "one is missing": (lambda peers: sorted(peers)[1:], "left out"),
    "itself too": (lambda peers: sorted([*peers, me()]), "to itself"),
    "twice": (lambda peers: sorted(peers * 2), "twice"),
    "all ranks": (lambda peers: [r for r in range(8) if r != me()], "no peers"),
    "nothing": (lambda peers: peers.sort(), "without `return`"),
    "another type": (lambda peers: tuple(peers), "another type"),
    "labkit's own": (programs.by_xor, "write"),
}


# --- 8.2


def mine(members):
    return [ranks for ranks in members if me() in ranks]


def local(ranks):
    return dist.new_group(ranks, use_local_synchronization=True)


def by_loop(members):
    groups = []
    for ranks in members:
        if me() in ranks:
            groups.append(dist.new_group(sorted(ranks), use_local_synchronization=True))
    return groups


def all_make_all(members):
    made = [dist.new_group(ranks) for ranks in members]
    return [group for group, ranks in zip(made, members, strict=True) if me() in ranks]


def one_at_the_end(members):
    groups = all_make_all(members)
    dist.barrier()
    return groups


def barrier_each(members):
    groups = []
    for ranks in members:
        groups.append(dist.new_group(ranks))
        dist.barrier()
    return [group for group, ranks in zip(groups, members, strict=True) if me() in ranks]


def sum_each(members):
    groups = []
    for ranks in members:
        groups.append(dist.new_group(ranks))
        dist.all_reduce(torch.zeros(1))
    return [group for group, ranks in zip(groups, members, strict=True) if me() in ranks]


RIGHT_GROUPS = {
    "comprehension": lambda members: [local(ranks) for ranks in mine(members)],
    "loop": by_loop,
    "no barrier at all": all_make_all,
    "one barrier at the end": one_at_the_end,
}
WRONG_GROUPS = {
    "as it was": (barrier_each, "the crowd"),
    "a barrier by another name": (sum_each, "as a barrier does"),
    "the first only": (lambda members: [local(r) for r in mine(members)[:1]], "missing"),
    "all of them": (lambda members: [dist.new_group(ranks) for ranks in members], "placeholder"),
    "the whole world": (
        lambda members: [dist.new_group() for _ in mine(members)] if me() < 0 else [None],
        "placeholder",
    ),
    "another order": (lambda members: [local(r) for r in mine(members)][::-1], "another order"),
    "twice": (lambda members: [g for r in mine(members) for g in [local(r)] * 2], "twice"),
    "nothing": (lambda members: None, "without `return`"),
    "a dictionary": (lambda members: {tuple(r): local(r) for r in mine(members)}, "another type"),
    "labkit's own": (programs.local_groups, "write"),
}


# --- 8.3


def mean(metrics, *, names=None, dtype=torch.float64, op=dist.ReduceOp.SUM, by=None):
    names = names or sorted(metrics)
    values = torch.tensor([metrics[name] for name in names], dtype=dtype)
    dist.all_reduce(values, op=op)
    values /= by or dist.get_world_size()
    return dict(zip(names, values.tolist(), strict=True))


def with_numpy(metrics):
    names = sorted(metrics)
    values = torch.empty(len(names), dtype=torch.double)
    for i, name in enumerate(names):
        values[i] = metrics[name] / 4
    total(values)
    return {name: values[i].item() for i, name in enumerate(names)}


def in_the_background(metrics):
    items = sorted(metrics.items())
    values = torch.tensor([value for _, value in items], dtype=torch.float64)
    dist.all_reduce(values, async_op=True).wait()
    means = dict(zip((name for name, _ in items), values / dist.get_world_size(), strict=True))
    return {name: means[name] for name in metrics}


def objects(metrics):
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, metrics)
    return {name: sum(one[name] for one in gathered) / len(gathered) for name in metrics}


def one_by_one(metrics):
    means = {}
    for name in sorted(metrics):
        value = torch.tensor(metrics[name], dtype=torch.float64)
        dist.all_reduce(value)
        means[name] = value.item() / dist.get_world_size()
    return means


def with_names(metrics):
    mean(dict.fromkeys(map(str, range(200)), 0.0))
    return mean(metrics)


def in_place(metrics):
    metrics.update(mean(metrics))
    return dict(metrics)


RIGHT_MEANS = {
    "comprehension": mean,
    "a loop and another import": with_numpy,
    "in the background": in_the_background,
}
WRONG_MEANS = {
    "not sorted": (lambda m: mean(m, names=list(m)), "another metric"),
    "float32": (lambda m: mean(m, dtype=torch.float32), "rounding"),
    "the sum": (lambda m: mean(m, by=1), "that is the sum"),
    "less one": (lambda m: mean(m, by=3), "less one"),
    "the largest": (lambda m: mean(m, op=dist.ReduceOp.MAX, by=1), "the largest"),
    "its own": (dict, "nothing was averaged"),
    "objects": (objects, "everything goes to everybody"),
    "one by one": (one_by_one, "a call for each"),
    "more than figures": (with_names, "names are the same"),
    "in place": (in_place, "return a new dictionary"),
    "some names": (lambda m: dict(sorted(mean(m).items())[1:]), "every metric"),
    "a list": (lambda m: list(mean(m).values()), "another type"),
    "nothing": (lambda m: print(end=""), "without `return`"),
    "labkit's own": (programs.reduce_tensor, "write"),
}


# --- 8.4


def by_remainder(rates):
    first = [rate / sum(rates) for rate in rates[:-1]]
    return [*first, 1 - sum(first)]


RIGHT_SHARES = {
    "comprehension": lambda rates: [rate / sum(rates) for rate in rates],
    "torch": lambda rates: (torch.tensor(rates, dtype=torch.double) / sum(rates)).tolist(),
    "the rest for the last": by_remainder,
    "a tuple": lambda rates: tuple(rate / sum(rates) for rate in rates),
}
WRONG_SHARES = {
    "equal": (lambda rates: [1 / len(rates)] * len(rates), "equal shares"),
    "by time": (
        lambda rates: [1 / rate / sum(1 / r for r in rates) for rate in rates],
        "that is the time",
    ),
    "of the fastest": (lambda rates: [rate / max(rates) for rate in rates], "of the fastest"),
    "per cent": (lambda rates: [100 * rate / sum(rates) for rate in rates], "per cent"),
    "rates": (lambda rates: rates, "divide by their sum"),
    "squares": (lambda rates: [rate**2 / sum(r * r for r in rates) for rate in rates], "squares"),
    "sorted": (lambda rates: [r / sum(rates) for r in sorted(rates)], "wrong paths"),
    "for three paths": (lambda rates: [1 / 6, 1 / 6, 2 / 3], "any number"),
    "all on one": (
        lambda rates: [float(i == rates.index(max(rates))) for i in range(len(rates))],
        "everything on one path",
    ),
    "not all of it": (lambda rates: [0.9 * rate / sum(rates) for rate in rates], "add up to 1"),
    "half of the way": (
        lambda rates: [(rate / sum(rates) + 1 / len(rates)) / 2 for rate in rates],
        "before another",
    ),
    "nothing": (lambda rates: None, "without `return`"),
    "labkit's own": (on_links.shares_by_rate, "write"),
}


# --- 8.5


def longest_first(lengths, ranks):
    dealt, loads = [[] for _ in range(ranks)], [0] * ranks
    for sample in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        rank = loads.index(min(loads))
        dealt[rank].append(sample)
        loads[rank] += lengths[sample]
    return dealt


def with_pairs(lengths, ranks):
    hosts = [[0, []] for _ in range(ranks)]
    for length, sample in sorted(((n, i) for i, n in enumerate(lengths)), reverse=True):
        hosts.sort(key=lambda host: host[0])
        hosts[0][0] += length
        hosts[0][1].append(sample)
    return [samples for _, samples in hosts]


def improved(lengths, ranks):
    where = [i % ranks for i in range(len(lengths))]

    def load(rank):
        return sum(n for n, at in zip(lengths, where, strict=True) if at == rank)

    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]) * 3:
        where[i] = -1
        where[i] = min(range(ranks), key=load)
    return [[i for i, at in enumerate(where) if at == rank] for rank in range(ranks)]


def snake(lengths, ranks):
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    return [order[rank::ranks] for rank in range(ranks)]


def shortest_first(lengths, ranks):
    dealt = [[] for _ in range(ranks)]
    for sample in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        min(dealt, key=lambda own: sum(lengths[i] for i in own)).append(sample)
    return dealt


RIGHT_DEALS = {"longest first": longest_first, "pairs": with_pairs, "improved": improved}
WRONG_DEALS = {
    "by count": (
        lambda n, ranks: [
            list(range(r * -(-len(n) // ranks), min(len(n), (r + 1) * -(-len(n) // ranks))))
            for r in range(ranks)
        ],
        "equally many samples",
    ),
    "in turn": (
        lambda n, ranks: [list(range(r, len(n), ranks)) for r in range(ranks)],
        "equally many samples",
    ),
    "snake": (snake, "Long ones first"),
    "shortest first": (shortest_first, "shortest first"),
    "one has all": (
        lambda n, ranks: [list(range(len(n))), *([] for _ in range(ranks - 1))],
        "nearly everything",
    ),
    "lengths": (
        lambda n, ranks: [[n[i] for i in own] for own in longest_first(n, ranks)],
        "these are lengths",
    ),
    "the long ones left out": (
        lambda n, ranks: [[i for i in own if n[i] < 9] for own in longest_first(n, ranks)],
        "left out",
    ),
    "twice": (lambda n, ranks: [own + own[:1] for own in longest_first(n, ranks)], "twice"),
    "a list for four": (lambda n, ranks: longest_first(n, 4), "empty list"),
    "nothing": (lambda n, ranks: None, "without `return`"),
    "sorts what it was given": (
        lambda n, ranks: n.sort() or longest_first(n, ranks),
        "changes what it was given",
    ),
    "labkit's own": (programs.by_length, "write"),
}
