from pytest import approx

from labkit.comm.alpha_beta import Saturation


def test_saturation_is_flat_up_to_the_knee_and_then_grows_with_every_rank():
    law = Saturation(latency=300e-6, cpu_per_call=100e-6, cores=4)
    assert law.knee == approx(12)
    assert law.curve([2, 12]) == approx([300e-6, 300e-6])
    assert law.curve([13, 24, 48]) == approx([325e-6, 600e-6, 1200e-6])
    assert law.curve(range(2, 5)) == [law.time(ranks) for ranks in (2, 3, 4)]
