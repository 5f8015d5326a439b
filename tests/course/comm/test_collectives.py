from functools import partial

import pytest
import torch
import torch.distributed as dist

from course.comm.collectives import COLLECTIVES, Buffers, WrongAnswer, pattern, ping_pong, total
from labkit import launch
from labkit.measure import timing


@pytest.mark.parametrize("n", range(2, 9))
def test_the_library_gives_the_expected_values(n):
    def program():
        rank = dist.get_rank()
        for collective in COLLECTIVES.values():
            for numel in (n, 13 * n, 1001 * n):
                buffers = collective.prepare(numel, rank=rank, world_size=n)
                collective.run(buffers, None)
                collective.check(buffers, numel=numel, rank=rank, world_size=n)

    launch(program, world_size=n)


def test_expected_values_by_hand():
    first, second = pattern(0, 4), pattern(1, 4)
    assert not torch.equal(first, second)
    assert total(2, 4).tolist() == [a + b for a, b in zip(first, second, strict=True)]
    expected = {name: collective.expected(1, 2, 4) for name, collective in COLLECTIVES.items()}
    assert expected["reduce_scatter"].tolist() == total(2, 4)[2:].tolist()
    assert expected["all_gather"].tolist() == [*pattern(0, 2), *pattern(1, 2)]
    assert expected["all_to_all"].tolist() == [*first[2:], *second[2:]]
    assert expected["broadcast"].tolist() == first.tolist()
    assert expected["send"].tolist() == first.tolist()
    assert expected["reduce"] is None


@pytest.mark.parametrize("name", COLLECTIVES)
def test_doing_nothing_is_a_wrong_answer(name):
    collective = COLLECTIVES[name]
    rank = 0 if name == "reduce" else 1
    buffers = collective.prepare(12, rank=rank, world_size=3)
    with pytest.raises(WrongAnswer, match=f"{name} of 12 elements on 3 ranks: rank {rank}"):
        collective.check(buffers, numel=12, rank=rank, world_size=3)


def test_one_wrong_place_is_named():
    tensor = total(3, 12)
    tensor[5] += 1
    with pytest.raises(WrongAnswer, match=r"at place 5.* 1 of 12 places"):
        COLLECTIVES["all_reduce"].check(Buffers(tensor, tensor), numel=12, rank=0, world_size=3)


def test_an_uneven_size_is_refused_where_it_must_be():
    with pytest.raises(ValueError, match="7 % world_size 2 != 0"):
        COLLECTIVES["reduce_scatter"].prepare(7, rank=0, world_size=2)
    assert COLLECTIVES["all_reduce"].prepare(7, rank=0, world_size=2).source.numel() == 7


def test_data_differ_by_rank_and_place_and_sum_exactly():
    rows = torch.stack([pattern(rank, 5000) for rank in range(8)])
    assert len(torch.unique(rows, dim=0)) == 8
    assert torch.equal(rows, rows.round())
    assert rows.abs().max() < 500
    assert all(len(torch.unique(row)) > 400 for row in rows)


@pytest.mark.parametrize("n", [2, 3])
def test_ping_pong_times_one_way_and_lets_others_look_on(n):
    for nbytes in (4, 2**16):
        times = launch(partial(ping_pong, nbytes, iters=5), world_size=n)[0]
        assert len(times) == 5
        assert all(t > 0 for t in times)


def test_one_way_is_half_a_round_trip():
    def program():
        real = timing.time_calls
        trips = []

        def listening(*args, **options):
            trips.append(real(*args, **options))
            return trips[-1]

        timing.time_calls = listening
        return ping_pong(64, iters=5), trips

    times, trips = launch(program, world_size=2)[0]
    assert times == [trip / 2 for trip in trips[0]]
