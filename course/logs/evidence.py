"""What a file says for or against the rows of the field guide."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from course.logs import failures, nccl_debug, report
from course.logs.logs import Log
from course.logs.nccl_debug import Job
from course.predictions.judging import outcome

_THEN = {
    "TCP sockets": "ibstat on these hosts, then NCCL_IB_HCA, NCCL_IB_DISABLE, NCCL_NET and the "
    "plug-in in the log: why is there no RDMA?",
    "is off": "lsmod | grep nvidia_peermem, nvidia-smi topo -m, NCCL_NET_GDR_LEVEL; then ACS: "
    "lspci -vvv | grep ACSCtl",
    "(SHM)": "nvidia-smi topo -p2p p: which GPUs cannot reach each other? then ACS and IOMMU",
}
"""What to do next, by words of what follows from NCCL's own lines."""
_SETTINGS = {
    "TCP sockets": ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA"),
    "no InfiniBand": ("NCCL_IB_DISABLE", "NCCL_NET", "NCCL_IB_HCA"),
    "is off": ("NCCL_NET_GDR_LEVEL", "NCCL_NET_GDR_READ", "NCCL_DMABUF_ENABLE"),
    "(SHM)": ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
}
"""Settings by which somebody may have wanted just that, by the same words."""


class Finding(NamedTuple):
    """One thing that was read."""

    row: int
    """Of the field guide."""
    guilty: bool | None
    """Whether it speaks for that row or against it; None: neither, but it is worth knowing."""
    says: str
    then: str = ""
    """What to do next, where that is not what the row says."""


_LOST = (
    "on both hosts, twice, a minute apart: rdma statistic (local_ack_timeout_err, packet_seq_err, "
    "rnr_nak_retry_err), then mlxlink of the card that the warning names"
)


def of_numbers(
    step: float,
    without: float,
    wait: float | None = None,
    calls: float | None = None,
    queued: float | None = None,
) -> list[Finding]:
    """Hold four numbers, and a fifth, against the rows.

    Args:
        step: Milliseconds of one step.
        without: Milliseconds of the step without communication.
        wait: Milliseconds, of the difference, in which a rank waits for the last one; the median
            rank's. None: not known.
        calls: Milliseconds that its calls would take if they moved nothing: their number times the
            latency of one. None: not known.
        queued: Milliseconds in which a rank was ready to run and had no CPU. None: not known.

    Raises:
        ValueError: A number is negative, or a step takes no time.
    """
    if not min(step, without, wait or 0, calls or 0, queued or 0) >= 0 or step <= 0:
        raise ValueError("times are milliseconds, none negative, and a step takes some.")
    lost = max(step - without, 0.0)
    share = f"communication costs {_ms(lost)} of {_ms(step)} ms"
    found = [Finding(1, outcome(lost / step, stands=0.05, fell=0.2), share)]
    if queued is not None:
        says = f"a rank had no CPU for {_ms(queued)} of {_ms(step)} ms"
        found.append(Finding(3, outcome(queued / step, stands=0.3, fell=0.1), says))
        if found[-1].guilty:
            later = "the queue for CPUs lengthens every other figure: mend it first"
            return [*found, *(Finding(row, None, later) for row in (2, 4, 5, 6, 7))]
    if lost < 0.05 * step:
        return found
    if wait is None:
        unknown = "how much of it is waiting is not known: a checkup or traces of all ranks say it"
        return [*found, Finding(2, None, unknown)]
    says = f"{_ms(wait)} of these {_ms(lost)} ms are waiting for the last rank"
    found.append(Finding(2, outcome(wait / lost, stands=0.5, fell=0.25), says))
    rest = max(lost - wait, 0.0)
    if rest < 0.25 * lost:
        little = f"only {_ms(rest)} of {_ms(lost)} ms are not waiting"
        return [*found, *(Finding(row, False, little) for row in (4, 5, 6, 7))]
    if calls is not None:
        says = f"calls × latency are {_ms(calls)} of {_ms(rest)} ms that are not waiting"
        found.append(Finding(4, outcome(calls / rest, stands=0.5, fell=0.2), says))
    moving = max(rest - (calls or 0.0), 0.0)
    if moving < 0.25 * lost:
        little = f"only {_ms(moving)} of {_ms(lost)} ms are neither waiting nor latency"
        return [*found, *(Finding(row, False, little) for row in (5, 6, 7))]
    over = f"{_ms(moving)} ms move data: bytes over a rate"
    over += "" if calls is not None else ", or calls: calls × latency is not known"
    return [*found, *(Finding(row, None, over) for row in ((5, 6, 7) if calls is not None
                                                           else (4, 5, 6, 7)))]  # fmt: skip


def of_logs(logs: Sequence[Log]) -> list[Finding]:
    """Hold logs of one tool against the rows: of nccl-tests, of NCCL's own lines or of both.

    Files of NCCL's own lines are read as one job's: it can write one for each process. Files of
    nccl-tests are jobs of their own, whose measurements and failures are put together.
    """
    (whole,) = report.together(logs)
    tests = whole.records or whole.failures
    jobs = logs if tests else [whole]
    found = [one for log in jobs for one in _of_job(log)]
    return [*dict.fromkeys(found), *(_of_tests(whole) if tests else ())]


def _of_tests(log: Log) -> Iterator[Finding]:
    name = log.paths[0].name if len(log.paths) == 1 else f"these {len(log.paths)} files"
    for rule in report.rules(log):
        yield Finding(
            6,
            True,
            rule,
            "python -m course report of these files: the matrix, and the failed tests",
        )
    for kind in failures.kinds(log.failures, log.records):
        hosts = f" ({kind.shared})" if kind.shared else ""
        says = f"failed {kind.phase}: {len(kind.tests)} tests, {kind.text}{hosts}"
        yield Finding(8, True, says)
    if log.records:
        says = f"{len(log.records)} measurements in {name}: python -m course report shows them"
        yield Finding(6, None, says)


def _of_job(log: Log) -> Iterator[Finding]:
    """Read what NCCL says of itself."""
    job, name = log.job, log.paths[0].name
    for warned in job.warned():
        yield from _of_warning(warned, job)
    yield from _of_timeouts(job)
    if len(job.versions) > 1:
        lines = ", ".join(
            f"{what}{_on(job.runs.get(what))} ({row})" for what, row in job.versions.items()
        )
        yield Finding(8, True, f"unlike versions, unless these are two jobs: {lines}")
    for says, row in nccl_debug.conclusions(log.statements, job):
        then = next((text for words, text in _THEN.items() if words in says), "")
        certain = then and "do not say" not in says
        where = _where(says, job)
        wanted = [one for words, names in _SETTINGS.items() if words in says
                  for one in log.statements if _is_set(one, names)]  # fmt: skip
        if wanted:
            then = f"{wanted[0].says} is set ({wanted[0].row}): unset it, and run again"
        elif job.without_verbs and ("TCP sockets" in says or "no InfiniBand" in says):
            host, line = next(iter(job.without_verbs.items()))
            then = (
                f"libibverbs is missing on {host} ({line}): install it (rdma-core) in the image, "
                "and run again"
            )
        yield Finding(6, True if certain else None, f"{says}{where} ({row})", then)
    if job.several is False:
        yield Finding(6, None, f"one host: its {_most(job.gpus)} GPUs need no network ({name})")
    elif job.several:
        yield from _of_cards(job)
    for card, (slot, link, row) in job.narrow.items():
        says = f"{card} has {slot:g} GB/s of PCI Express for a link of {link:g} ({row})"
        yield Finding(6, True, says, "lspci -vv of that slot: LnkSta against LnkCap; reseat, BIOS")
    yield from _of_slots(job)


def _is_set(one: nccl_debug.Statement, names: Sequence[str]) -> bool:
    name, _, value = one.says.partition("=")
    return one.topic == "setting" and name in names and not (name.endswith("E") and value == "0")


def _on(hosts: Iterable[str] | None, most: int = 4) -> str:
    """Name hosts: `` on a, b``; nothing where none is known."""
    known = sorted(hosts or ())
    more = f" and {len(known) - most} more" if known[most:] else ""
    return f" on {', '.join(known[:most])}{more}" if known else ""


def _where(says: str, job: Job) -> str:
    """Name the hosts of which a conclusion holds, where it does not hold of all."""
    if "TCP sockets" in says:
        return _some_of(job, lambda host: any("Socket" in one for one in job.networks[host]))
    if "GPUDirect RDMA" in says:
        on = "is on" in says
        return _some_of(job, lambda host: on in job.direct.get(host, ()))
    return ""


def _some_of(job: Job, holds: Callable[[str], bool]) -> str:
    """Name the hosts of which something holds, where it does not hold of all."""
    some = [host for host in job.networks if holds(host)]
    if len(some) == len(job.networks):
        return ""
    others = {one for host in job.networks if host not in some for one in job.networks[host]}
    return f"{_on(some)}; the other hosts use {', '.join(sorted(others))}"


def _of_warning(warned: nccl_debug.Warned, job: Job) -> Iterator[Finding]:
    where = warned.row + (f", {warned.count} times" if warned.count > 1 else "")
    where = f"{_on(warned.hosts).strip()}; {where}" if warned.hosts else where
    where += f"; the address is that of {', '.join(peers)}" if (peers := job.peers(warned)) else ""
    where += f"; at {warned.at}" if warned.at else ""
    if not warned.fatal:
        yield Finding(8, None, f"WARN, not known to end a job: {warned.says} ({where})")
        return
    meaning = warned.meaning or "the call that gave it returned an error"
    yield Finding(8, True, f"WARN, fatal: {meaning}: {warned.says} ({where})")
    if "Got completion" in warned.says and "flushed" not in meaning:
        yield Finding(6, True, f"a transfer failed: {meaning} ({where})", _LOST)


def _of_timeouts(job: Job) -> Iterator[Finding]:
    """Compare the calls in which torch's watchdog found the ranks."""
    ranks_in: dict[str, list[int]] = {}
    for rank, waited in sorted(job.timeouts.items()):
        ranks_in.setdefault(waited.call, []).append(rank)
    if not ranks_in:
        return
    first = next(iter(job.timeouts.values()))
    said = "; ".join(
        f"rank{'s' if ranks[1:] else ''} {', '.join(map(str, ranks[:8]))}"
        f"{f' and {len(ranks) - 8} more' if ranks[8:] else ''} in {call}"
        for call, ranks in ranks_in.items()
    )
    if len(ranks_in) == 1:
        meaning = "a rank that is missing here came later, never, or had died"
        then = "which ranks are missing, and what did each of them last? py-spy dump; their logs"
    else:
        meaning = "ranks are in different calls, if these are of one process group"
        then = "torchfrtrace over the flight records of all ranks: the first call that differs"
    says = (
        f"torch's watchdog ended calls after {first.seconds:g} s: {said}; {meaning} ({first.row})"
    )
    yield Finding(8, True, says, then)


def _of_cards(job: Job) -> Iterator[Finding]:
    """Compare the hosts' cards with each other, and with their GPUs."""
    counts = {host: len(cards) for host, (cards, _) in job.cards.items()}
    if not counts:
        return
    fewest, most = min(counts.values()), max(counts.values())
    where = next(row for host, (_, row) in job.cards.items() if counts[host] == fewest)
    if fewest < most:
        few = [host for host, count in counts.items() if count < most]
        names = ", ".join(few[:5]) + (f" and {len(few) - 5} more" if few[5:] else "")
        says = f"{names}: {fewest} cards, where other hosts have {most}"
        yield Finding(
            6,
            True,
            f"{says} ({where})",
            f"ibstat on {few[0]}: which port is down? rdma link, dmesg for its card",
        )
    gpus, channels = _most(job.gpus), max(job.channels, default=0)
    used = len(job.used) if channels >= most else most  # a channel uses one card
    cards = min(used or most, most)
    says = f"{gpus} GPUs of a host, {most} cards" + (f", {cards} in use" if cards < most else "")
    says += f", {channels} channels" if channels else ""
    crowded = gpus >= 4 * cards
    then = "nvidia-smi topo -m, ibstat, NCCL_IB_HCA: where are the other cards?" if crowded else ""
    yield Finding(6, True if crowded else None, f"{says} ({where})", then)


def _of_slots(job: Job) -> Iterator[Finding]:
    """Find GPUs whose PCI Express link is half of their like's, or less."""
    gpus = {card: slot for card, slot in job.slots.items() if "GPU/" in card}
    widest = max((width for width, _ in gpus.values()), default=0.0)
    for card, (width, row) in gpus.items():
        if width <= widest / 1.9:
            says = f"{card} has {width:g} GB/s of PCI Express where another has {widest:g}"
            then = "nvidia-smi --query-gpu=pcie.link.width.current,pcie.link.gen.current under load"
            yield Finding(6, True, f"{says} ({row})", then)


def _ms(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _most(gpus: dict[str, int]) -> int:
    return max(gpus.values(), default=0)
