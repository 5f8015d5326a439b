import pytest

from labkit.fabric.plan import Plan


def plan(**changes):
    return Plan(**{"rates": ((0, 100e6, 30e6), (100e6, 0, 20e6), (30e6, 20e6, 0)), **changes})


def test_a_pair_without_nics_has_its_own_rate():
    assert plan().wire_rate(0, 2) == 30e6
    assert plan().fastest == 100e6


def test_the_slowest_of_link_and_both_nics_counts():
    assert plan(nics=(50e6, 100e6, 10e6)).wire_rate(0, 1) == 50e6
    assert plan(nics=(50e6, 100e6, 10e6)).wire_rate(1, 2) == 10e6


def test_payload_is_what_headers_leave():
    # A packet of 9000 bytes takes 9014 of the wire and carries 9000 - 20 - 32 = 8948.
    assert plan().payload_rate(0, 1) == pytest.approx(100e6 / 8 * 8948 / 9014)
    assert plan(mtu=1500).payload_rate(0, 1) == pytest.approx(100e6 / 8 * 1448 / 1514)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rates": ((0, 1e6), (1e6,))}, "square"),
        ({"rates": ((0,),)}, "1 hosts"),
        ({"rates": ((1e6,) * 65,) * 65}, "65 hosts"),
        ({"mtu": 100}, "mtu=100"),
        ({"delay": -1}, "delay=-1"),
    ],
)
def test_what_cannot_be_built_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        plan(**changes)
