"""What is timed on a fabric: the rates of its links, and its start."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from labkit import launch
from labkit.fabric.fabric import Fabric
from labkit.measure.timing import slowest, summarize, time_calls
from tests.fabric.test_fabric import needs_hosts

pytestmark = [pytest.mark.slow, pytest.mark.timed, needs_hosts]

RATE = "20mbit"  # a packet takes longer than a machine, idle or busy, is late to send it
NBYTES = 1 << 20


def median(program, *args, **options):
    return summarize(slowest(launch(program, *args, **options))).median


def send(nbytes, src=0, dst=1):
    x = torch.ones(nbytes // 4)
    actions = {src: lambda: dist.send(x, dst), dst: lambda: dist.recv(x, src)}
    return time_calls(actions.get(dist.get_rank(), lambda: None), warmup=1, iters=3)


def ring_all_reduce(nbytes):
    x = torch.ones(nbytes // 4)
    return time_calls(lambda: dist.all_reduce(x), warmup=1, iters=3)


def sent_again(nbytes):
    ring_all_reduce(nbytes)
    counts = Path("/proc/self/net/snmp").read_text().splitlines()
    return int([line for line in counts if line.startswith("Tcp:")][1].split()[12])


def ratio(ideal, *program, **options):
    """A time over the ideal one: the closest of three, since other programs may interrupt."""
    ratios = []
    while len(ratios) < 3 and all(abs(one - 1) >= 0.03 for one in ratios):
        ratios.append(median(*program, **options) / ideal)
    return min(ratios, key=lambda one: abs(one - 1))


def test_time_is_bytes_over_the_line_rate():
    hosts, nbytes = 2, NBYTES // 2
    with Fabric.star(hosts=hosts, rate=RATE) as fabric:
        payload, there = fabric.payload_rate(0, 1), {"world_size": hosts, "fabric": fabric}
        one_transfer = ratio(nbytes / payload, send, nbytes, **there)
        assert one_transfer == pytest.approx(1, abs=0.03)
        ideal = 2 * (hosts - 1) / hosts * nbytes / payload
        assert ratio(ideal, ring_all_reduce, nbytes, **there) == pytest.approx(1, abs=0.03)
        packets = 4 * ideal * payload / 8948  # of a rank, in four calls
        assert max(launch(sent_again, nbytes, **there)) < 0.01 * packets


def test_a_message_of_300_kb_takes_the_time_of_its_bytes():
    """Each message finds an idle link, whose burst would let a part of it pass at once."""
    nbytes = 307_200

    def one_way():
        x = torch.ones(nbytes // 4)
        legs = [lambda: dist.send(x, 1), lambda: dist.recv(x, 1)]
        if dist.get_rank() == 1:
            legs = [lambda: dist.recv(x, 0), lambda: dist.send(x, 0)]
        return [t / 2 for t in time_calls(lambda: [leg() for leg in legs], warmup=2, iters=9)]

    with Fabric.star(hosts=2, rate="200mbit") as fabric:
        ideal = nbytes / fabric.payload_rate(0, 1)
        assert ideal == pytest.approx(12.38e-3, rel=0.01)
        assert ratio(ideal, one_way, world_size=2, fabric=fabric) == pytest.approx(1, abs=0.05)


def test_two_flows_into_one_nic_share_it():
    def program():
        rank, x = dist.get_rank(), torch.ones(NBYTES // 4)
        dist.barrier()
        begin = time.perf_counter()
        if rank < 2:
            dist.send(x, 2)
            return None

        def arrival(work):
            work.wait()
            return time.perf_counter() - begin

        works = [dist.irecv(torch.empty_like(x), src) for src in (0, 1)]
        with ThreadPoolExecutor() as threads:
            return sorted(threads.map(arrival, works))

    with Fabric.star(hosts=3, rate=RATE) as fabric:
        launch(program, world_size=3, fabric=fabric)  # connect once
        shares = []
        for _ in range(3):
            first, last = launch(program, world_size=3, fabric=fabric)[2]
            # Together they have the NIC until the first is done: it got S in that time, and what
            # the other got is the rest.
            ideal = 2 * NBYTES / fabric.payload_rate(0, 2)
            shares.append(last / (2 * first))
            if 0.45 <= shares[-1] <= 0.55 and last == pytest.approx(ideal, rel=0.05):
                return
    pytest.fail(f"shares of the faster flow: {shares}")


@pytest.mark.exhaustive
def test_each_ordered_pair_has_its_own_rate():
    rates = [["1mbit", "40mbit", "10mbit"], ["20mbit", "1mbit", "1mbit"], ["1mbit"] * 3]
    ideal = 0.25  # seconds, long beside a pause of the machine
    with Fabric(rates) as fabric:
        for src, dst in ((0, 1), (0, 2), (1, 0)):
            nbytes = int(ideal * fabric.payload_rate(src, dst))
            one = ratio(ideal, send, nbytes, src, dst, world_size=3, fabric=fabric)
            assert one == pytest.approx(1, abs=0.05), (src, dst)


def test_ranks_of_one_host_speak_over_its_own_loopback():
    with Fabric.star(hosts=2, rate=RATE, ranks_per_host=2) as fabric:
        first, second, third, fourth = (fabric.placement(rank, 4) for rank in range(4))
        assert first == second != third == fourth
        within = median(send, NBYTES, world_size=4, fabric=fabric)
        assert within < 0.2 * NBYTES / fabric.payload_rate(0, 1)
