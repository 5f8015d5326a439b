"""The cases: what was reported, the program that shows it here, the suspects, the end."""

from functools import partial

from course import ledger_file, published
from course.lessons.casebook import on_links, programs
from course.lessons.casebook import readings as read
from course.lessons.casebook.ward import Case, Ending, Suspect
from labkit.fabric.fabric import Fabric

REPORTED = published.load("casebook")
MEGABYTE = 1e6


def starved(says: str = "The ranks lack CPUs.") -> Suspect:
    """Suspect that CPUs are what there is too little of."""
    look = "ranks ran or waited for a CPU {} % of the time"
    return Suspect(says, "scheduler", read.busy, 75, look)


def heavy(limit: float = MEGABYTE, says: str = "Much data has to move.") -> Suspect:
    """Suspect that many bytes move."""
    return Suspect(says, "wire meter", read.bytes_sent, limit, "a rank sent {} bytes at most")


def straggler(phase: str, says: str = "One rank comes late.") -> Suspect:
    """Suspect that a rank begins late."""
    look = f"waiting for the last rank takes {{}} % of {phase}"
    return Suspect(says, "per-rank timers", partial(read.late, phase=phase), 50, look)


def aggregate(seen: list) -> float:
    """Return the sum of what the pairs call their bandwidth, as a multiple of the wire's.

    A pair's time is its receiver's: a sender is done when the socket's buffer has the bytes.
    """
    receivers = [one for one in seen if one["rank"] >= on_links.PAIRS]
    bits = 8 * 4 * on_links.LENGTH
    return sum(bits / read.total(one, "timed") for one in receivers) / on_links.WIRE


_ALL = (
    Case(
        name="first-sum",
        lesson="00",
        title="The first all_reduce takes twelve minutes",
        symptom=("connect",),
        story="A ring of 644 GPUs. With 128 ranks the first all_reduce takes 145 s, with 256 ranks "
        "298 s, with 644 ranks 742 s; all later ones are fast. Here: 12 ranks, and a sleep of "
        "10 ms stands for what the network card needs to set up one connection.",
        program=programs.connections,
        fault=programs.by_rank,
        cure=programs.by_xor,
        fix="order(peers) -> the same peers, in the order in which this rank connects to them",
        phase="connect",
        world_size=12,
        par=2.0,
        culprit="order",
        suspects={
            "order": Suspect(
                "Ranks wait for each other in a chain before they connect.",
                "per-rank timers",
                partial(read.finish, phase="connect"),
                2.5,
                "the last rank has its connections {} times as late as the first",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "cpu": starved(),
        },
        ending=Ending(
            "Connecting needs both ranks at once. In rank order the pair (1, 2) waits for (0, 1), "
            "(2, 3) for (1, 2), and so on; by XOR distance every pair is its own first or second.",
            "why one connection took their cards 1.2 s.",
            "py-spy on two ranks far apart: both in the connect call, for other peers",
            "the time does not grow with the world size: then it is a single slow peer",
        ),
    ),
    Case(
        name="start-up",
        lesson="05b",
        title="Groups that take longer on every larger cluster",
        symptom=("groups",),
        story="Three process groups per rank take 0.12 s on 4 ranks and 2.87 s on 128: gloo, one "
        "host, measured by the author of a change to PyTorch. Here: a group for each pair of "
        "neighbours among twelve ranks.",
        program=programs.groups,
        fault=programs.one_by_one,
        cure=programs.local_groups,
        fix="make(members) -> the groups of this rank; `members` lists the ranks of every group",
        phase="make groups",
        world_size=12,
        par=2.0,
        culprit="everybody",
        suspects={
            "everybody": Suspect(
                "All ranks wait for each other after every group, also for groups of others.",
                "call counts",
                partial(read.most_calls, kind="barrier"),
                3,
                "a rank makes {} barriers, though it is in two groups at most",
            ),
            "bytes": heavy(says="Making a group moves much data."),
            "late": straggler("make groups"),
        },
        ending=Ending(
            "`use_local_synchronization=True` lets only the members wait: 0.04 s on 128 ranks. "
            "PyTorch held the barrier of everybody itself, until pull request 103033.",
            "that a job which still calls `dist.barrier()` after each group pays the same.",
            "time each `new_group` on rank 0; py-spy shows the others in a barrier",
            "`new_group` itself is slow: NCCL's own set-up, which is lazy unless asked",
        ),
    ),
    Case(
        name="stretches",
        lesson="02",
        title="Steps that jump in stretches",
        symptom=("collector",),
        story="A job on many GPUs takes 16.7 s per step in quiet stretches and 18.5 s in others. "
        "Nothing in the network changed. Here: two ranks, 24 short steps, and 250,000 Python "
        "objects on each rank that live as long as the job.",
        program=programs.collector,
        fault=programs.when_full,
        cure=programs.together,
        fix="due(step) -> whether this rank does its housekeeping after this step; as often as now",
        phase="all_reduce",
        world_size=2,
        par=1.5,
        culprit="turns",
        suspects={
            "turns": Suspect(
                "Each rank pauses at another step, and all others wait for it.",
                "timeline",
                partial(read.scattered, phase="all_reduce"),
                20,
                "of the long waits, {} % are for another rank than the one most waited for",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "one-slow": Suspect(
                "One rank is slow, always the same.",
                "per-rank timers",
                partial(read.same_rank, phase="all_reduce"),
                85,
                "of the long waits, {} % are for one and the same rank",
            ),
            "calls": Suspect(
                "There are too many calls.",
                "call counts",
                read.most_calls,
                160,
                "a rank makes {} calls in 24 steps",
            ),
        },
        ending=Ending(
            "Python's garbage collector looks at every object that it tracks: 1.4 to 1.5 s for 4.7 "
            "million. The ranks did it at steps of their own; now they do it at the same step. "
            "torchtitan reports 1.5 % per step on 512 GPUs for the same idea.",
            "the width of the slow stretches: the thread says that its data do not predict it.",
            "`gc.callbacks` with a clock; `py-spy dump --native` shows `gc_collect_main`",
            "the pauses fall on the same step everywhere: then they cost once",
        ),
    ),
    Case(
        name="averages",
        lesson="06",
        title="Forty-four seconds to average metrics",
        symptom=("metrics",),
        story="Some thousands of named figures are averaged over the ranks after a step. The "
        "author computed the cost in one process: 4.1 s of CPU for 512 ranks' data, 43.7 s and "
        "2.9 GB for 4096. Here: 8 ranks, 3000 metrics, three steps.",
        program=programs.metrics,
        fault=programs.gather,
        cure=programs.reduce_tensor,
        fix="average(metrics) -> name: mean over all ranks; every rank has the same names",
        phase="metrics",
        world_size=8,
        par=3.0,
        culprit="names",
        suspects={
            "names": heavy(says="More than the figures travels, from everybody to everybody."),
            "late": straggler("metrics"),
            "calls": Suspect(
                "There is a call for each metric.",
                "call counts",
                read.most_calls,
                3000,
                "a rank makes {} calls for three times 3000 metrics",
            ),
        },
        ending=Ending(
            "3000 figures are 24 kB. In the thread 92 % of what travels are the names, and every "
            "rank unpickles a dictionary of every other. One all_reduce of a fixed layout replaces "
            "it.",
            "the 43.7 s on a real cluster: they are computed from one process.",
            "py-spy: `pickle.loads` on top, on every rank; GPUs idle meanwhile",
            "few metrics and few ranks: then it is the wait for the last rank",
        ),
    ),
    Case(
        name="idle-gpus",
        lesson="01",
        title="GPUs that wait at 73 %",
        symptom=("threads_torchrun",),
        story="Several processes share a host, each with a GPU. Up to four of them all is well, "
        "with more the performance drops. Another thread has 8 GPUs on 368 cores: utilization "
        "73 %. Here: two ranks that compute on the CPU and sum, in turns.",
        program=programs.threads,
        fault=programs.as_found,
        cure=programs.shared_out,
        fix="count(ranks) -> threads with which each of this host's ranks computes; see cpus()",
        phase="compute",
        world_size=2,
        par=1.3,
        culprit="threads",
        suspects={
            "threads": Suspect(
                "Together the ranks compute with more threads than there are CPUs.",
                "environment",
                read.threads_per_cpu,
                1.2,
                "there are {} computing threads for each CPU that the ranks may use",
            ),
            "network": heavy(100 * MEGABYTE, "The network is slow: much data has to move."),
            "late": Suspect(
                "One rank has more to do than the other.",
                "scheduler",
                read.uneven_work,
                1.5,
                "the busiest rank was on a CPU {} times as long as the least busy one",
            ),
        },
        ending=Ending(
            "Each process sizes its thread pool to all cores. Capped to cores / processes, busy "
            "cores fell from 118 to 18, utilization rose to 87 %, and runs took 1.3 to 1.75 times "
            "less. torchrun sets OMP_NUM_THREADS=1 for this reason; other launchers need not.",
            "that the first thread (2019) had the same cause: its author says so, without figures.",
            "`top -H` on a host; `torch.get_num_threads()` on two ranks",
            "one thread each and still no CPU: other jobs, a quota, or one mask for all ranks",
        ),
    ),
    Case(
        name="two-nodes",
        lesson="02",
        title="Twice as slow on two nodes",
        symptom=("accumulation",),
        story="Training with gradient accumulation, measured for a library's documentation: 0.50 s "
        "per batch on one node, 2 s on two; it could be 0.41 and 0.91. Here: two nodes joined by "
        "20 Mbit/s, DDP, two batches of four micro-batches.",
        program=on_links.accumulation,
        fault=on_links.every_time,
        cure=on_links.last_time,
        fix="context(model, micro_batch) -> the context in which micro-batch 0 .. 3 runs",
        phase="backward",
        world_size=2,
        par=2.0,
        fabric=lambda: Fabric.star(hosts=2, rate="20mbit"),
        culprit="every",
        suspects={
            "every": heavy(
                2.5 * 4 * on_links.WIDTH * on_links.WIDTH,
                "More gradients travel than one batch needs.",
            ),
            "late": straggler("backward"),
            "link": Suspect(
                "The link does not carry what it should.",
                "wire meter",
                lambda seen: 100 - read.rate(seen, "backward", 2 * 20e6),
                50,
                "while backward runs, {} % of what the link could carry is free",
            ),
            "cpu": starved(),
        },
        ending=Ending(
            "DDP sums the gradients in every backward. Only the last of a batch needs it: "
            "`with model.no_sync()` around forward *and* backward of the others. The same page "
            "measures `no_sync` around the wrong half: 2.13 s, no better than without.",
            "nothing: the page measured all four.",
            "count the bytes of a step: k times the gradients instead of once",
            "k is 1, or it is ZeRO-2 or FSDP: what must be summed is another question there",
        ),
    ),
    Case(
        name="228-bytes",
        lesson="02",
        title="228 bytes take 4 ms",
        symptom=("late",),
        story="Twenty nodes with eight GPUs. In training, an all_reduce of 228 bytes takes about "
        "4 ms; in nccl-tests as much time moves 16 MB. Here: four ranks, six steps on samples of "
        "unequal length; a sleep stands for the GPU's work on a sample.",
        program=programs.late_rank,
        fault=programs.by_count,
        cure=programs.by_length,
        fix="deal(lengths, ranks) -> for each rank the places of its samples in `lengths`",
        phase="all_reduce",
        world_size=4,
        par=2.5,
        culprit="late",
        suspects={
            "late": Suspect(
                "One rank comes late, and the timers of the others show their wait for it.",
                "per-rank timers",
                partial(read.uneven, phase="all_reduce"),
                3,
                "the longest timer of all_reduce shows {} times the shortest",
            ),
            "longest": Suspect(
                "The rank whose all_reduce takes longest is the slow one.",
                "timeline",
                partial(read.longest_is_last, phase="all_reduce"),
                50,
                "the rank that stays longest in all_reduce comes last in {} % of the calls",
            ),
            "network": heavy(says="The network is slow: much data has to move."),
            "cpu": starved(),
        },
        ending=Ending(
            "The reply suspects load imbalance: one GPU that shows up 4 ms later than its peers.",
            "all of it: the thread never says whether it was so.",
            "begin times of the same call on all ranks: a profiler, or the flight recorder",
            "all ranks come at the same time, and the call is slow all the same",
        ),
    ),
    Case(
        name="slow-flows",
        lesson="04",
        title="A hundred gigabits that carry forty",
        symptom=("streams",),
        story="All-reduce between four machines on a network of 100 Gbit/s reaches 4 to 6 GB/s. "
        "NCCL cuts each message into equal parts for several connections. Here: one sender and "
        "three paths, of 10, 10 and 40 Mbit/s.",
        program=on_links.streams,
        fault=on_links.equal_shares,
        cure=on_links.shares_by_rate,
        fix="shares(rates) -> the share of each path; together 1",
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
                "Every path gets the same share, so the fast ones wait for the slow ones.",
                "per-rank timers",
                partial(read.uneven, phase="receive"),
                1.7,
                "the slowest path needs {} times as long for its share as the fastest",
            ),
            "copies": heavy(6 * MEGABYTE, "Bytes are sent twice: 2 MB, two times, would be 4 MB."),
            "cpu": starved(),
        },
        ending=Ending(
            "A reply in another thread: NCCL's bandwidth is the slowest connection's times their "
            "number. The first thread measured eight flows together and found just that.",
            "why their flows differ: the thread does not find out.",
            "`ss -ti` on the sender: cwnd and rate differ between the flows",
            "all flows are equally slow: then it is the host or the card",
        ),
    ),
    Case(
        name="alltoall",
        lesson="04",
        title="An alltoall of 24 seconds",
        symptom=("interface",),
        story="gloo's alltoall takes 24,160 ms. One variable later it takes 258 ms, on the same "
        "machines. Here: four hosts with two network interfaces each.",
        program=on_links.interface,
        fault=on_links.as_it_is,
        cure=on_links.fast_interface,
        fix="environment() -> variables to set before gloo makes its group",
        phase="alltoall",
        world_size=4,
        par=5.0,
        culprit="interface",
        fabric=lambda: Fabric.star(hosts=4, rate="400mbit", management="8mbit"),
        suspects={
            "interface": Suspect(
                "The traffic takes the wrong interface.",
                "wire meter",
                partial(read.share_through, name="eth1"),
                50,
                "{} % of all bytes left through eth1",
            ),
            "size": heavy(5 * MEGABYTE, "The exchange is large."),
            "cpu": starved(),
            "late": straggler("alltoall"),
        },
        ending=Ending(
            "`export GLOO_SOCKET_IFNAME=eth0`: gloo otherwise takes the interface that the host's "
            "name stands for.",
            "which interface it took before: the comment does not say.",
            "`ip -s link` before and after: which counter rises? `ss -t`: whose addresses?",
            "bytes leave through the fast interface and it is slow: then look at its rate",
        ),
    ),
    Case(
        name="above-the-wire",
        lesson="07",
        title="98 GB/s on a wire of 50",
        symptom=("wire",),
        story="A benchmark adds up what eight GPUs send through two cards of 25 GB/s each, and "
        "reports 98.24 GB/s. Each pair warms up, then times its own transfer. Here: four pairs on "
        "one wire of 400 Mbit/s.",
        program=on_links.pairs,
        fault=on_links.at_once,
        cure=on_links.all_ready,
        fix="before_clock() -> nothing; runs on every rank, after its warm-up, before its clock",
        phase="timed",
        par=1.3,
        costs=aggregate,
        unit="sum of the pairs' bandwidths / wire",
        culprit="windows",
        fabric=lambda: Fabric.star(hosts=2, rate=on_links.WIRE, ranks_per_host=on_links.PAIRS),
        suspects={
            "windows": Suspect(
                "The pairs are not timed at the same time.",
                "timeline",
                partial(read.apart, phase="timed"),
                20,
                "the timed stretches lie apart for {} % of what they could",
            ),
            "wire": Suspect(
                "The wire carries more than it says.",
                "wire meter",
                partial(read.rate, phase="timed", wire_rate=on_links.WIRE),
                130,
                "from the first begin to the last end {} % of the wire's rate went through",
            ),
            "twice": heavy(
                1.5 * 4 * on_links.LENGTH * (1 + on_links.PAIRS),
                "The pairs move more bytes than they count.",
            ),
        },
        ending=Ending(
            "Nothing synchronized the windows: one GPU was timed at 21 GB/s while few competed, "
            "another at 4 while all did. Each figure is right; adding them up is not. The change "
            "puts a barrier of all ranks before the clock.",
            "nothing: the pull request measured both.",
            "print begin and end of each rank's window, not its bandwidth alone",
            "the windows coincide: then a switch that adds, a tree, or several cards (lesson 07)",
        ),
        world_size=2 * on_links.PAIRS,
    ),
)
CASES: dict[str, Case] = {case.name: case for case in _ALL}
"""By name."""


def dealt() -> list[Case]:
    """Return the cases whose lesson was run to its end, as the ledger knows."""
    finished = ledger_file.load().finished
    return [case for case in _ALL if case.lesson in finished]


def reported_in(case: Case) -> str:
    """Say where a case was reported, without the title of the thread: titles tell."""
    first = REPORTED[case.symptom[0]].source
    owner, name, *_ = first.address.removeprefix("https://github.com/").split("/")
    return f"{owner}/{name}, {first.when}"
