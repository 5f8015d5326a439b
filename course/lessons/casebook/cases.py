"""The cases: what was reported, the program that shows it here, and the suspects."""

import statistics
from collections.abc import Callable
from functools import partial

from course.lessons.casebook import on_links, programs, published
from course.lessons.casebook import readings as read
from course.lessons.casebook.ward import Case, Suspect, run, slowest
from labkit.fabric.fabric import Fabric

MEGABYTE = 1e6


def scaling(
    case: Case, sizes: tuple[int, ...], *, cost: Callable[[list], float] | None = None
) -> dict[int, float]:
    """Return a case's seconds in its slow phase for several world sizes: the better of two runs.

    `cost`: what to take instead of the slow phase's seconds, from what every rank saw.
    """
    cost = cost or partial(slowest, phase=case.phase)
    return {n: min(cost(run(case, ranks=n)) for _ in range(2)) for n in sizes}


def cpu_seconds(phase: str) -> Callable[[list], float]:
    """Return what takes the CPU seconds of a phase, of one rank on average."""
    return lambda seen: statistics.mean(sum(s.cpu for s in read.of(one, phase)) for one in seen)


def busbw(seen: list, servers: int) -> float:
    """Return the bus bandwidth of the sum over some servers, as a multiple of what a card carries.

    busbw = 2 (n - 1) / n times bytes over time, for n ranks: the convention of nccl-tests.
    """
    n, phase = servers * on_links.PER_SERVER, f"{servers} servers"
    nbytes = 4 * on_links.LENGTH
    return 2 * (n - 1) / n * 8 * nbytes / slowest(seen, phase) / on_links.CARD


def fall(seen: list) -> float:
    """Return by which factor busbw falls from two servers to four."""
    return busbw(seen, 2) / busbw(seen, 4)


def modelled_busbw(algorithm: str, servers: int, per_server: int) -> float:
    """Return the busbw of a sum over a card's rate, from the bytes that the busiest card sends.

    A double tree sends the tensor once on two servers, where each has one neighbour, and twice on
    more. A ring sends 2 (n - 1) / n times the tensor on any number: that is what busbw assumes.
    """
    n = servers * per_server
    assumed = 2 * (n - 1) / n
    return assumed / {"ring": assumed, "tree": 1 if servers == 2 else 2}[algorithm]


def idle_cards(seen: list) -> float:
    """Return how much of the time the cards of four servers could have sent more, in percent.

    An inner server of a double tree sends the tensor twice, a server of a ring 2 (n - 1) / n times.
    """
    return 100 * (1 - 2 * 8 * 4 * on_links.LENGTH / on_links.CARD / slowest(seen, "4 servers"))


def step_cpu(seen: list) -> float:
    """Return the CPU milliseconds that all ranks together spend in their steps."""
    return 1e3 * sum(s.cpu for one in seen for s in read.of(one, "step"))


def starved(says: str = "the ranks lack CPUs.") -> Suspect:
    """Suspect that CPUs are what there is too little of."""
    look = "ranks ran or waited for a CPU {} % of the time"
    return Suspect(says, "scheduler", read.busy, 75, look)


def heavy(limit: float = MEGABYTE, says: str = "much data has to move.") -> Suspect:
    """Suspect that many bytes move."""
    return Suspect(says, "wire meter", read.bytes_sent, limit, "a rank sent {} bytes at most")


def straggler(phase: str) -> Suspect:
    """Suspect that a rank begins late."""
    look = f"the last rank begins {phase} later than the first by {{}} % of its time"
    begins = partial(read.late, phase=phase)
    return Suspect("one rank comes late.", "per-rank timers", begins, 50, look)


_ALL = (
    Case(
        name="connections",
        title="The first all_reduce takes twelve minutes",
        report=(published.CONNECT,),
        program=programs.connections,
        fault=programs.by_rank,
        cure=programs.by_xor,
        phase="connect",
        world_size=12,
        par=2.0,
        culprit="order",
        suspects={
            "order": Suspect(
                "each rank waits for the one before it, because peers are taken by rank.",
                "per-rank timers",
                partial(read.finish, phase="connect"),
                2.5,
                "the last rank has its connections {} times as late as the first",
            ),
            "network": heavy(says="the network is slow: much data has to move."),
            "cpu": starved(),
        },
        production="py-spy on two ranks, far apart: both in the connect call, for other peers",
        not_when="the time does not grow with the world size: then it is a single slow peer",
    ),
    Case(
        name="groups",
        title="A thousand seconds to make groups",
        report=(published.GROUPS, published.LOCAL_GROUPS),
        program=programs.groups,
        fault=programs.barrier_each,
        cure=programs.local_groups,
        phase="make groups",
        world_size=12,
        par=2.0,
        culprit="barriers",
        suspects={
            "barriers": Suspect(
                "all ranks wait for each other after every group, also for groups of others.",
                "call counts",
                partial(read.most_calls, kind="barrier"),
                3,
                "a rank makes {} barriers, though it is in two groups at most",
            ),
            "bytes": heavy(says="making a group moves much data."),
            "late": straggler("make groups"),
        },
        production="time each new_group on rank 0; py-spy shows the others in a barrier",
        not_when="new_group itself is slow: NCCL's own set-up, which is lazy unless asked",
    ),
    Case(
        name="collector",
        title="Steps that jump in stretches",
        report=(published.COLLECTOR_STEPS, published.COLLECTOR, published.COLLECTOR_TITAN),
        program=programs.collector,
        fault=programs.each_at_its_time,
        cure=programs.together,
        phase="step",
        world_size=4,
        par=1.3,
        culprit="pauses",
        suspects={
            "pauses": Suspect(
                "each rank pauses at another step, and the others wait for it each time.",
                "timeline",
                partial(read.scattered, inner="collect", outer="step"),
                1.5,
                "for each pause of a rank, {} steps have a pause of somebody",
            ),
            "network": heavy(says="the network is slow: much data has to move."),
            "calls": Suspect(
                "there are too many calls.",
                "call counts",
                read.most_calls,
                160,
                "a rank makes {} calls in 16 steps",
            ),
            "cpu": starved(),
        },
        production="gc.callbacks with a clock; py-spy dump --native shows gc_collect_main",
        not_when="the pauses fall on the same step everywhere: then they cost once",
    ),
    Case(
        name="metrics",
        title="Four seconds to average metrics",
        report=(published.METRICS,),
        program=programs.metrics,
        fault=programs.gather_objects,
        cure=programs.reduce_tensor,
        phase="metrics",
        par=3.0,
        culprit="objects",
        suspects={
            "objects": heavy(says="names travel with the figures, from everybody to everybody."),
            "straggler": straggler("metrics"),
            "calls": Suspect(
                "there is a call for each metric.",
                "call counts",
                read.most_calls,
                3000,
                "a rank makes {} calls for three times 3000 metrics",
            ),
        },
        production="py-spy: pickle.loads on top, on every rank; GPUs idle meanwhile",
        not_when="few metrics and few ranks: then it is the wait for the last rank",
    ),
    Case(
        name="masks",
        title="15 GB/s instead of 42",
        report=(published.AFFINITY,),
        program=programs.masks,
        fault=programs.inherit,
        cure=programs.spread,
        phase="compute",
        world_size=2,
        par=1.9,
        costs=read.ranks_per_cpu,
        unit="ranks for each CPU that they may use",
        culprit="mask",
        suspects={
            "mask": Suspect(
                "all ranks may use the same CPUs only: they inherited one mask.",
                "environment",
                read.ranks_per_cpu,
                1,
                "there are {} ranks for each CPU that they may use",
            ),
            "network": heavy(100 * MEGABYTE, "the network is slow: much data has to move."),
            "late": Suspect(
                "one rank has more to do.",
                "scheduler",
                read.uneven_work,
                2,
                "the busiest rank was on a CPU {} times as long as the least busy one",
            ),
        },
        production="taskset -cp PID of two ranks; Cpus_allowed_list in /proc/PID/status",
        not_when="ranks have CPUs of their own and still wait: other jobs, or a quota",
    ),
    Case(
        name="first-call",
        title="The first send takes 700 ms",
        report=(published.FIRST,),
        program=programs.first_call,
        fault=programs.start_at_once,
        cure=programs.warm_up,
        phase="call 1",
        world_size=2,
        par=3.0,
        culprit="lazy",
        suspects={
            "lazy": Suspect(
                "connections are made at the first call.",
                "per-rank timers",
                partial(read.ratio, phase="call 1", other="call 3"),
                2,
                "call 1 takes {} times as long as call 3",
            ),
            "size": heavy(says="the message is large."),
            "always": Suspect(
                "a call of this library takes that long.",
                "per-rank timers",
                partial(read.ratio, phase="call 3", other="call 1"),
                0.7,
                "call 3 takes {} times as long as call 1",
            ),
        },
        production="time the second call; NCCL: NCCL_RUNTIME_CONNECT, device_id= at init",
        not_when="the second call is slow as well: then it is a late rank",
    ),
    Case(
        name="late-rank",
        title="228 bytes take 4 ms",
        report=(published.LATE,),
        program=programs.late_rank,
        fault=programs.by_count,
        cure=programs.by_length,
        phase="all_reduce",
        world_size=4,
        par=2.5,
        culprit="late",
        suspects={
            "late": Suspect(
                "one rank comes late, and the timers of the others show their wait for it.",
                "per-rank timers",
                partial(read.uneven, phase="all_reduce"),
                3,
                "the longest timer of all_reduce shows {} times the shortest",
            ),
            "longest": Suspect(
                "the rank whose all_reduce takes longest is the slow one.",
                "timeline",
                partial(read.longest_is_last, phase="all_reduce"),
                50,
                "the rank that stays longest in all_reduce comes last in {} % of the calls",
            ),
            "network": heavy(says="the network is slow: much data has to move."),
            "cpu": starved(),
        },
        production="begin times of the same call on all ranks: a profiler, or the flight recorder",
        not_when="all ranks come at the same time, and the call is slow all the same",
    ),
    Case(
        name="overlap",
        title="Overlap makes it slower",
        report=(published.OVERLAP, published.OVERLAP_KERNELS, published.OVERLAP_MEMORY),
        program=programs.overlap,
        fault=programs.overlapped,
        cure=programs.in_turn,
        phase="step",
        world_size=2,
        par=1.3,
        costs=step_cpu,
        unit="CPU time of all ranks in their steps (ms)",
        culprit="cpu",
        suspects={
            "cpu": starved(
                "computing and communicating want the same CPUs, and these are never idle."
            ),
            "bytes": heavy(20 * MEGABYTE, "more bytes move than without overlap."),
            "late": straggler("step"),
        },
        production="the same kernel's time with and without a collective beside it, in one profile",
        not_when="the transfers wait for a link while the processor is free: then overlap pays",
    ),
    Case(
        name="buffers",
        title="GPUs that starve without NVLink",
        report=(published.BUFFERS, published.BUFFERS_FIX),
        program=on_links.buffers,
        fault=on_links.default_options,
        cure=on_links.without_buffers,
        phase="forward",
        world_size=2,
        par=3.0,
        culprit="buffers",
        fabric=lambda: Fabric.star(hosts=2, rate="20mbit"),
        suspects={
            "buffers": heavy(
                2 * MEGABYTE, "DDP sends rank 0's buffers to all before every forward."
            ),
            "gradients": Suspect(
                "the gradients are large.",
                "per-rank timers",
                partial(read.share, phase="backward", other="forward"),
                0.5,
                "backward, which sends the gradients, takes {} times as long as forward",
            ),
            "input": Suspect(
                "the step waits for its input.",
                "per-rank timers",
                read.between,
                50,
                "{} % of the time from the first to the last phase lie between phases",
            ),
        },
        production="the profiler shows broadcasts before each forward; count them",
        not_when="the buffers must be equal: small batches that are not drawn alike",
    ),
    Case(
        name="streams",
        title="Eight flows, eight times the slowest",
        report=(published.STREAMS, published.STREAMS_WHY),
        program=on_links.streams,
        fault=on_links.equal_shares,
        cure=on_links.shares_by_rate,
        phase="send",
        world_size=4,
        par=1.5,
        culprit="shares",
        fabric=lambda: Fabric(
            [
                [on_links.RATES[max(a, b) - 1] if 0 in (a, b) else 40e6 for b in range(4)]
                for a in range(4)
            ]
        ),
        suspects={
            "shares": Suspect(
                "every path gets the same share, so the fast ones wait for the slow ones.",
                "per-rank timers",
                partial(read.uneven, phase="receive"),
                1.7,
                "the slowest path needs {} times as long for its share as the fastest",
            ),
            "copies": heavy(6 * MEGABYTE, "bytes are sent twice: 2 MB, two times, would be 4 MB."),
            "cpu": starved(),
        },
        production="ss -ti on the sender: cwnd and rate differ between the flows",
        not_when="all flows are equally slow: then it is the host or the card",
    ),
    Case(
        name="interface",
        title="An alltoall of 24 seconds",
        report=(published.INTERFACE,),
        program=on_links.interface,
        fault=on_links.as_it_is,
        cure=on_links.fast_interface,
        phase="alltoall",
        world_size=4,
        par=5.0,
        culprit="interface",
        fabric=lambda: Fabric.star(hosts=4, rate="400mbit", management="8mbit"),
        suspects={
            "interface": Suspect(
                "the traffic takes the wrong interface, the slow one for management.",
                "wire meter",
                partial(read.share_through, name="eth1"),
                50,
                "{} % of all bytes left through eth1",
            ),
            "size": heavy(5 * MEGABYTE, "the exchange is large."),
            "cpu": starved(),
            "late": straggler("alltoall"),
        },
        production="ip -s link before and after: which counter rises? ss -t: whose addresses?",
        not_when="bytes leave through the fast interface and it is slow: then look at its rate",
    ),
    Case(
        name="two-hosts",
        title="Bandwidth that falls from 100 to 40 GB/s",
        report=(published.HOSTS, published.HOSTS_WHY, published.HOSTS_BUG),
        program=on_links.two_hosts,
        fault=on_links.double_tree,
        cure=on_links.ring,
        phase="2 servers",
        par=1.25,
        costs=fall,
        unit="busbw of 2 servers over that of 4",
        culprit="flattered",
        fabric=lambda: Fabric.star(hosts=4, rate=on_links.CARD, ranks_per_host=on_links.PER_SERVER),
        suspects={
            "flattered": Suspect(
                "it is the figure of two hosts that is too good: a tree of two sends less than "
                "busbw assumes.",
                "per-rank timers",
                partial(busbw, servers=2),
                1.1,
                "two servers show a busbw of {} times what a card carries",
            ),
            "switch": Suspect(
                "with more hosts the network becomes slower.",
                "per-rank timers",
                idle_cards,
                40,
                "with four servers the cards of the inner ones could have sent more for {} % of "
                "the time",
            ),
            "cpu": starved(),
        },
        production="the same sweep with NCCL_ALGO=Ring, for 2, 3, 4, ... hosts",
        not_when="the ring falls as well: then look for a slow host or card (lesson 07)",
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _ALL}
"""By name."""
