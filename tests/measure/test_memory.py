import torch

from labkit.measure import memory

KIB = 1024


def test_the_peak_is_what_was_alive_at_once():
    x = torch.ones(KIB)
    with memory.watch() as usage:
        y = x * 2
        y = y + 1  # the product lives until the name moves on
        del y
        z = torch.empty(10 * KIB, dtype=torch.uint8)
    assert usage.peak == 10 * KIB
    assert usage.now == 10 * KIB
    del z
    assert usage.now == 0


def test_two_at_once():
    x = torch.ones(KIB)
    with memory.watch() as usage:
        _ = x * 2 + 1
    assert usage.peak == 2 * 4 * KIB


def test_views_and_in_place_work_are_free():
    x = torch.ones(KIB)
    with memory.watch() as usage:
        for part in x.tensor_split(7):
            part.add_(part.view(-1)[: part.numel()])
        x[::2].mul_(3)
        x.t()
    assert usage.peak == 0


def test_a_storage_counts_once_while_any_view_lives():
    with memory.watch() as usage:
        view = torch.ones(KIB)[:1]
        for _ in range(5):
            view = view.view(1)
    assert usage.peak == usage.now == 4 * KIB
    del view
    assert usage.now == 0
