import torch

from course.comm.collectives import pattern, ping_pong, total
from labkit import launch
from labkit.measure import timing


def test_data_differ_by_rank_and_place_and_sum_exactly():
    rows = torch.stack([pattern(rank, 5000) for rank in range(8)])
    assert len(torch.unique(rows, dim=0)) == 8
    assert all(len(torch.unique(row)) > 400 for row in rows)
    assert torch.equal(rows, rows.round()) and rows.abs().max() < 500
    assert torch.equal(total(8, 5000), rows.sum(0))


def test_one_way_is_half_a_round_trip_and_others_look_on():
    def program():
        real, trips = timing.time_calls, []

        def listening(*args, **options):
            trips.extend(real(*args, **options))
            return trips

        timing.time_calls = listening
        return ping_pong(64, iters=5), trips

    times, trips = launch(program, world_size=3)[0]
    assert len(times) == 5 and min(times) > 0
    assert times == [trip / 2 for trip in trips]
