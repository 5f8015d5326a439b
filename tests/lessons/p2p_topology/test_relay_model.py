import pytest

from labkit.lessons.p2p_topology.relay_model import best_chunk, relay_time

MB = 1_000_000


def test_one_chunk_stores_and_forwards():
    assert relay_time([MB, MB, MB], nbytes=MB, chunk=MB) == pytest.approx(3.0)
    assert relay_time([MB, MB, MB], nbytes=MB, chunk=9 * MB) == pytest.approx(3.0)


def test_by_hand():
    # 4 chunks of 0.25 MB; hops take 0.25 + 0.1 and 0.125 + 0.1: 0.35 + 0.225 + 3 * 0.35.
    assert relay_time([MB, 2 * MB], nbytes=MB, chunk=MB // 4, alpha=0.1) == pytest.approx(1.625)


def test_small_free_chunks_cost_one_transfer():
    assert relay_time([MB, MB], nbytes=MB, chunk=100) == pytest.approx(1.0, rel=1e-3)


@pytest.mark.parametrize("rates", [[MB, MB], [MB, 2 * MB], [3 * MB, MB, 2 * MB]])
def test_the_best_chunk_is_the_lowest_point_of_the_curve(rates):
    chunk = best_chunk(rates, nbytes=10 * MB, alpha=1e-3)
    best = relay_time(rates, nbytes=10 * MB, chunk=round(chunk), alpha=1e-3)
    for factor in (0.25, 0.5, 2, 4):
        other = relay_time(rates, nbytes=10 * MB, chunk=round(chunk * factor), alpha=1e-3)
        assert best < other


def test_where_there_is_no_optimum_it_says_so():
    with pytest.raises(ValueError, match="one hop"):
        best_chunk([MB], nbytes=MB, alpha=1e-3)
    with pytest.raises(ValueError, match="alpha=0"):
        best_chunk([MB, MB], nbytes=MB, alpha=0)
    with pytest.raises(ValueError, match="chunk=0"):
        relay_time([MB, MB], nbytes=MB, chunk=0)
