import pytest

from labkit.fabric.rates import format_rate, loopback_rate, parse_rate


@pytest.mark.parametrize(
    ("text", "bits"),
    [("200mbit", 200e6), ("1gbit", 1e9), ("1.5 Gbit", 1.5e9), ("64kbit", 64e3), (744e6, 744e6)],
)
def test_a_rate_is_bits_per_second(text, bits):
    assert parse_rate(text) == bits


@pytest.mark.parametrize(
    "text", ["", "fast", "12", "1 GB/s", "-1mbit", 0, -5.0, float("inf"), "0bit"]
)
def test_what_is_not_a_rate_is_refused_by_name(text):
    with pytest.raises(ValueError, match="rate="):
        parse_rate(text)


def test_rates_are_written_with_a_unit_that_suits():
    assert [format_rate(bits) for bits in (744e6, 1e9, 64e3, 5)] == [
        "744 Mbit/s",
        "1 Gbit/s",
        "64 kbit/s",
        "5 bit/s",
    ]


def test_the_loopback_is_measured_and_is_faster_than_any_slow_link():
    assert loopback_rate() > 100e6
