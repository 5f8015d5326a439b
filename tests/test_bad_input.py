"""What labkit exports refuses what makes no sense: in one line, by name, with what was got."""

import pytest

import labkit
from labkit import Fabric, Launcher, Timeline, launch, slowest, summarize, time_calls, wire

SQUARE = [[1e9, 1e9], [1e9, 1e9]]


def star():
    return Fabric.star(hosts=2, rate="1gbit")


MISUSES = [
    (lambda: launch(int, timeout=float("nan")), "timeout", "nan"),
    (lambda: launch(int, threads=0), "threads", "0"),
    (lambda: launch(int, backend=["gloo"]), "backend", "['gloo']"),
    (lambda: launch(int, fabric="star"), "fabric", "'star'"),
    (lambda: launch(int, env=3), "env", "3"),
    (lambda: launch(star, 4, 2), "of ranks is world_size=", "2 argument(s): too many"),
    (lambda: launch(int, output=3), "output", "3"),
    (lambda: launch(int, output=[4]), "output", "4"),
    (lambda: launch(int, output="logs"), "output", "'logs'"),
    (lambda: Launcher(world_size="2"), "world_size", "'2'"),
    (lambda: slowest(3), "slowest", "3"),
    (lambda: slowest([1.0, 2.0]), "slowest", "1.0"),
    (lambda: slowest([[1.0], [1.0, 2.0]]), "slowest", "[1, 2]"),
    (lambda: summarize([None]), "summarize", "[None]"),
    (lambda: summarize([]), "summarize", "none"),
    (lambda: time_calls(3), "time_calls", "3"),
    (lambda: time_calls(int, iters=2.5), "iters", "2.5"),
    (lambda: time_calls(int, warmup=-1), "warmup", "-1"),
    (lambda: time_calls(int, iters=0), "iters", "0"),
    (lambda: Fabric([[1e9, 1e9], [1e9]]), "square", ""),
    (lambda: Fabric(SQUARE, nics=[1e9]), "nics", "1 rates"),
    (lambda: Fabric(SQUARE, management="fast"), "rate", "'fast'"),
    (lambda: Fabric(SQUARE, ranks_per_host="2"), "ranks_per_host", "'2'"),
    (lambda: Fabric.star(hosts="2", rate=1e9), "hosts", "'2'"),
    (lambda: Fabric.star(hosts=1, rate=1e9), "2 to 64", "1"),
    (lambda: Fabric.star(hosts=3, rate=[1e9]), "rates", "1 rates were given"),
    (lambda: Fabric.star(hosts=2, rate=1e9, ranks_per_host=0), "ranks_per_host", "0"),
    (lambda: Fabric.star(hosts=2, rate="90000gbit").start(), "loopback carries", "9e+04"),
    (lambda: Fabric.star(hosts=2, rate=None), "rate", "None"),
    (lambda: Fabric.star(hosts=2, rate="10 Gb/s"), "rate", "'10 Gb/s'"),
    (lambda: Fabric.rails(None, 2, "1gbit", "2gbit"), "servers", "None"),
    (lambda: star().payload_rate(0, 5), "dst", "5"),
    (lambda: star().address("a"), "host", "'a'"),
    (lambda: wire.matrix(3), "report", "3"),
    (lambda: wire.payload([4]), "report", "4"),
    (lambda: wire.counted(None), "report", "None"),
    (lambda: Timeline([None]), "Timeline", "[None]"),
]


@pytest.mark.parametrize("use, named, got", MISUSES)
def test_it_is_refused_in_one_line_that_names_it(use, named, got):
    with pytest.raises((TypeError, ValueError)) as caught:
        use()
    text = str(caught.value)
    assert named in text and got in text and "\n" not in text


def test_what_numpy_has_is_taken():
    numpy = pytest.importorskip("numpy")
    fabric = Fabric(numpy.full((2, 2), 10**9), nics=numpy.array([1e9, 1e9]))
    assert fabric.hosts == 2 and fabric.payload_rate(0, 1) > 1e8
    assert labkit.summarize(slowest(numpy.ones((2, 3)))).count == 3
