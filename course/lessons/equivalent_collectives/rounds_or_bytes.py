"""Lesson 6, who wins when: rounds against bytes, on links where a message costs 10 ms.

A small tensor wants few rounds, a large one few bytes. On loopback the scheduler would decide; on
a fabric with a latency that is added on purpose the model must predict every time and every
crossing.
"""

import functools
import itertools
from collections.abc import Sequence
from pathlib import Path

from course import runs
from course.comm import costs
from course.lessons.equivalent_collectives import programs
from labkit.fabric.fabric import Fabric
from labkit.measure import records
from labkit.measure.records import Provenance, Record, Tier
from labkit.measure.tables import Table
from labkit.ranks import torchrun
from labkit.ranks.launcher import launch

NAME = "rounds-or-bytes"
TITLE = "Few rounds or few bytes?"
RECORDING = Path(__file__).with_name("recording.json")
SIZES = (2**14, 2**18, 2**20, 2**22)
RATE, SLOW, HOSTS = "200mbit", 0.01, 4


def sweep(
    sizes: Sequence[int] = SIZES,
    *,
    alpha: float = SLOW,
    iters: int = 2,
    say: runs.Say = print,
) -> list[Record]:
    """Time the hand-written all_reduces over sizes, on links where a message costs `alpha` more.

    Where no fabric can be made (torchrun's ranks have a network of their own), the recorded run is
    returned.

    Returns:
        A record per algorithm and size; `predicted` is the closed form's seconds. For `alpha` the
        sender sleeps before each message.
    """

    def measure(fabric: Fabric) -> list[Record]:
        return runs.watched(functools.partial(timed, fabric))

    def timed(fabric: Fabric) -> list[Record]:
        results = launch(
            programs.sweep, tuple(sizes), alpha, iters, world_size=HOSTS, fabric=fabric, timeout=120
        )
        beta = 1 / fabric.payload_rate(0, 1)
        params = {"hosts": HOSTS, "rate": RATE, "alpha": alpha}
        found = []
        for name, nbytes in itertools.product(programs.ALL_REDUCES, sizes):
            samples = [result[name, nbytes] for result in results]
            guess = costs.ALL_REDUCES[name](HOSTS).seconds(nbytes, alpha=alpha, beta=beta)
            about = {"collective": "all_reduce", "nbytes": nbytes, "predicted": guess}
            origin = Tier.EMULATED, Provenance.here()
            found.append(Record(NAME, name, params, samples, *origin, **about))
        return found

    if torchrun.is_here():
        return records.load(RECORDING, recorded=True, experiment=NAME)
    star = Fabric.star(hosts=HOSTS, rate=RATE)
    return runs.measured_or_recorded(measure, star, recording=RECORDING, experiment=NAME, say=say)


def run(*, quick: bool = False, progress: runs.Say = runs.quiet) -> list[Record]:
    """Run the sweep; where no fabric can be made, return the recorded one."""
    progress(f"{len(programs.ALL_REDUCES)} algorithms, {len(SIZES)} sizes")
    return sweep(iters=1 if quick else 3, say=progress)


def table(found: Sequence[Record]) -> Table:
    """Lay the records out for reading: measured against the closed form."""
    rows = []
    for record in found:
        run, model = record.summary.median, record.predicted
        rows.append([record.case, record.nbytes, run * 1e3, model * 1e3, f"{run / model - 1:+.0%}"])
    return Table(["algorithm", "S (bytes)", "ms", "model ms", "off"], rows)


def crossing(found: Sequence[Record], first: str, second: str, *, modelled: bool) -> float | None:
    """Return the bytes from which `second`, slower when S is small, is faster than `first`.

    By straight lines between neighbouring sizes that were run; None if they do not cross. Measured
    is the fastest of the calls: a busy machine can only add to it.
    """

    def times(name: str) -> dict[int, float]:
        return {
            r.nbytes: r.predicted if modelled else min(r.seconds) for r in found if r.case == name
        }

    early, late = times(first), times(second)
    sizes = sorted(early)
    for low, high in itertools.pairwise(sizes):
        before, after = late[low] - early[low], late[high] - early[high]
        if before > 0 >= after:
            return low + (high - low) * before / (before - after)
    return None
