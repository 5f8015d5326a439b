import pytest

from labkit.fabric.plan import Plan, parse_rate


def plan(**changes):
    return Plan(**{"rates": ((0, 100e6, 30e6), (100e6, 0, 20e6), (30e6, 20e6, 0)), **changes})


def test_the_slowest_of_link_and_both_nics_counts():
    assert plan().wire_rate(0, 2) == 30e6 and plan().fastest == 100e6
    assert plan(nics=(50e6, 100e6, 10e6)).wire_rate(0, 1) == 50e6
    assert plan(nics=(50e6, 100e6, 10e6)).wire_rate(1, 2) == 10e6


RATES = [("200mbit", 200e6), ("1gbit", 1e9), ("1.5 Gbit", 1.5e9), ("64kbit", 64e3), (744e6, 744e6)]


@pytest.mark.parametrize(("text", "bits"), RATES)
def test_a_rate_is_bits_per_second(text, bits):
    assert parse_rate(text) == bits


@pytest.mark.parametrize("text", ["", "12", "1 GB/s", "-1mbit", 0, float("inf")])
def test_what_is_not_a_rate_is_refused_by_name(text):
    with pytest.raises(ValueError, match="rate="):
        parse_rate(text)
