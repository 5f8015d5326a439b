"""Four servers, in each of which another suspect of lesson 04 is guilty; rebuilt and run for real.

The experiments and their tests are those that the lesson makes with the authors' figures.
"""

from course.lessons.p2p_topology import experiment as problem
from course.lessons.p2p_topology.evidence import PAIRS
from course.lessons.p2p_topology.programs import by_turns, first_bytes
from course.lessons.p2p_topology.topology import PUZZLE
from course.place import Place
from labkit.fabric.fabric import Fabric
from labkit.measure.records import Record

WORLDS = {
    "a": "one cable each, which all copies of a host share",
    "b": "the puzzle's links",
    "c": "one host receives slowly",
    "d": "slow between NUMA nodes, whatever the link",
}
"""By the letter of who is guilty."""
NBYTES, FULL, POOR, PAIR_SECONDS = 8_000_000, 46e6, 7.5e6, 0.2
"""What a copy carries, bytes per second of those servers' links, how long a copy takes alone: so
long that a rank that wakes up 4 ms late changes a rate by 2 %."""


def world(guilty: str) -> Fabric:
    """Return eight hosts, not yet up, among which this suspect is guilty; see `WORLDS`."""
    if guilty == "a":
        return Fabric.star(hosts=PUZZLE.gpus, rate=8 * FULL)
    if guilty == "b":
        return problem.links(1 / 1000)

    def rate(src: int, dst: int) -> float:
        slow = dst == problem.FAR if guilty == "c" else PUZZLE.numa[src] != PUZZLE.numa[dst]
        return POOR if slow else FULL

    return problem.links(1, rate)


def measure(guilty: str, *, rounds: int = 3) -> list[Record]:
    """Time each pair alone and the three copies together, round by round, in one of `WORLDS`.

    Its values are the ``rounds``: ``alone[src][dst]``, bytes per second, and ``together[dst]``, the
    seconds; both by the receiver's clock. `FabricUnavailable` where there are no links.
    """
    fabric = world(guilty)
    sizes = {(a, b): int(PAIR_SECONDS * fabric.payload_rate(a, b)) for a, b in PAIRS}
    arms = [{"nbytes": size, "src": a, "dsts": [b]} for (a, b), size in sizes.items()]
    arms.append({"nbytes": NBYTES, "src": problem.SRC, "dsts": problem.DSTS})
    most = max(NBYTES, *sizes.values())

    def time_pairs(here: Place) -> list[Record]:
        ranks = here.launch(by_turns, first_bytes, arms, most, rounds, timeout=300.0)
        copies = []
        for number in range(rounds):
            alone = [PUZZLE.gpus * [0.0] for _ in ranks]
            for arm, ((a, b), size) in enumerate(sizes.items()):
                alone[a][b] = size / ranks[b][arm][number]
            together = {str(dst): ranks[dst][-1][number] for dst in problem.DSTS}
            copies.append({"alone": alone, "together": together})
        samples = [[max(each["together"].values()) for each in copies]]
        fields = {"nbytes": NBYTES, "params": {"part": "world"}}
        fields |= {"experiment": problem.NAME, "values": {"rounds": copies}}
        return [here.record(f"world {guilty}", samples, **fields)]

    return Place(hosts=8, rate=WORLDS[guilty], fabric=fabric).watched(time_pairs)
