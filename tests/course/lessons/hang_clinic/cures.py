"""Cures of the clinic's patients: right ones in several styles (g), and usual mistakes (b)."""

import math
import time

import torch
import torch.distributed as dist


def g1():
    g = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in sorted(g):
        dist.all_reduce(g[name])
    return [g["weight"][0].item(), g["bias"][0].item()]


def g1flat():
    x = torch.cat([torch.full((4,), 1.0), torch.full((4,), 10.0)])
    dist.all_reduce(x)
    return [x[0].item(), x[4].item()]


def g1tuple():
    return tuple(g1())


def b1swapped():
    return g1()[::-1]


def b1unwaited():
    g = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    _ = [dist.all_reduce(g[name], async_op=True) for name in sorted(g)]
    return [1.0, 10.0]


def b1const():
    return [3.0, 30.0]


def b1barrier():
    rank = dist.get_rank()
    names = ["weight", "bias"] if rank != 1 else ["bias", "weight"]
    g = {"weight": torch.full((4,), 1.0), "bias": torch.full((4,), 10.0)}
    for name in names:
        dist.barrier()
        dist.all_reduce(g[name])
    return [g["weight"][0].item(), g["bias"][0].item()]


def b1n():
    x = torch.ones(4)
    dist.all_reduce(x)
    return [3.0, 30.0]


def g2():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    w = dist.isend(m, (r + 1) % n)
    dist.recv(t, (r - 1) % n)
    w.wait()
    return [t.item()]


def g2b():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    ops = [dist.P2POp(dist.isend, m, (r + 1) % n), dist.P2POp(dist.irecv, t, (r - 1) % n)]
    for w in dist.batch_isend_irecv(ops):
        w.wait()
    return [t.item()]


def g2c():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    if r == 0:
        dist.recv(t, n - 1)
        dist.send(m, 1)
    else:
        dist.send(m, (r + 1) % n)
        dist.recv(t, r - 1)
    return [t.item()]


def g2even():  # odd ranks receive first
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    if r % 2:
        dist.recv(t, (r - 1) % n)
        dist.send(m, (r + 1) % n)
    else:
        dist.send(m, (r + 1) % n)
        dist.recv(t, (r - 1) % n)
    return [t.item()]


def b2gather():
    r, n = dist.get_rank(), dist.get_world_size()
    o = [torch.zeros(1) for _ in range(n)]
    dist.all_gather(o, torch.tensor([float(r)]))
    return [o[r - 1].item()]


def b2const():
    return [float((dist.get_rank() - 1) % dist.get_world_size())]


def b2allrecv():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    dist.recv(t, (r - 1) % n)
    dist.send(m, (r + 1) % n)
    return [t.item()]


def b2barrier():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    dist.barrier()
    dist.send(m, (r + 1) % n)
    dist.recv(t, (r - 1) % n)
    return [t.item()]


def b2drop():
    r, n = dist.get_rank(), dist.get_world_size()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    dist.isend(m, (r + 1) % n)
    dist.recv(t, (r - 1) % n)
    return [t.item()]


def b2three():
    r = dist.get_rank()
    m, t = torch.tensor([float(r)]), torch.zeros(1)
    if r == 2:
        dist.recv(t, 1)
        dist.send(m, 0)
    else:
        dist.send(m, (r + 1) % 3)
        dist.recv(t, (r - 1) % 3)
    return [t.item()]


def g3():
    tot = []
    for b in range(3):
        x = torch.tensor([float(b + 1)])
        try:
            if dist.get_rank() == 1 and b == 0:
                raise ValueError("bad sample")
        except ValueError:
            x.zero_()
        dist.all_reduce(x)
        tot.append(x.item())
    return tot


def b3noraise():
    tot = []
    for b in range(3):
        x = torch.tensor([float(b + 1)])
        dist.all_reduce(x)
        tot.append(x.item())
    return tot


def b3barrier():
    tot = []
    for b in range(3):
        try:
            if dist.get_rank() == 1 and b == 0:
                raise ValueError("bad sample")
            x = torch.tensor([float(b + 1)])
            dist.all_reduce(x)
            tot.append(x.item())
        except ValueError:
            dist.barrier()
    return tot


def b3extra():
    tot = []
    for b in range(3):
        x = torch.tensor([float(b + 1)])
        if dist.get_rank() == 1 and b == 0:
            x.zero_()
        dist.barrier()
        dist.all_reduce(x)
        tot.append(x.item())
    return tot


def b3const():
    return [dist.get_world_size() - 1.0, 2.0 * dist.get_world_size(), 3.0 * dist.get_world_size()]


def b3three():
    tot = []
    for b in range(3):
        x = torch.tensor([float(b + 1)])
        if dist.get_rank() == 1 and b == 0:
            x.zero_()
        dist.all_reduce(x)
        tot.append(x.item())
    return tot if dist.get_world_size() != 2 else [2.0, 6.0, 9.0]


def g4():
    r, got = dist.get_rank(), []
    box = torch.zeros(1)
    if r == 0:
        for k in range(10):
            box.fill_(k)
            dist.isend(box, 1).wait()
    if r == 1:
        for _ in range(10):
            dist.recv(box, 0)
            got.append(box.item())
    return got


def g4two():
    r, got = dist.get_rank(), []
    box = torch.zeros(1)
    if r == 0:
        boxes = [torch.zeros(1), torch.zeros(1)]
        works = [None, None]
        for k in range(10):
            if works[k % 2]:
                works[k % 2].wait()
            boxes[k % 2].fill_(k)
            works[k % 2] = dist.isend(boxes[k % 2], 1)
        for w in works:
            w.wait()
    if r == 1:
        for _ in range(10):
            dist.recv(box, 0)
            got.append(box.item())
    return got


def b4two():
    rank, got, works = dist.get_rank(), [], []
    boxes = [torch.zeros(1), torch.zeros(1)]
    for k in range(10) if rank == 0 else ():
        works.append(dist.isend(boxes[k % 2].fill_(k), 1))
    for work in works:
        work.wait()
    time.sleep(0.05 if rank == 1 else 0.0)
    for _ in range(10) if rank == 1 else ():
        dist.recv(boxes[0], 0)
        got.append(boxes[0].item())
    return got


def b4sleep():
    r, got = dist.get_rank(), []
    box = torch.zeros(1)
    ws = []
    if r == 0:
        for k in range(10):
            box.fill_(k)
            ws.append(dist.isend(box, 1))
            time.sleep(0.1)
        for w in ws:
            w.wait()
    if r == 1:
        for _ in range(10):
            dist.recv(box, 0)
            got.append(box.item())
    return got


def b4const():
    return [float(k) for k in range(10)] if dist.get_rank() == 1 else []


def b4bcast():
    got = []
    for k in range(10):
        x = torch.tensor([float(k)])
        dist.broadcast(x, 0)
        got.append(x.item())
    return got if dist.get_rank() == 1 else []


def b4barrier():
    r, got = dist.get_rank(), []
    box = torch.zeros(1)
    for k in range(10):
        if r == 0:
            box.fill_(k)
            w = dist.isend(box, 1)
            w.wait()
        if r == 1:
            dist.recv(box, 0)
            got.append(box.item())
        dist.barrier()
    return got


def base5(decide, start=None):
    def f():
        time.sleep(0.25 if dist.get_rank() == 1 else 0.0)
        if start:
            start()
        saved, seen = time.monotonic(), []
        for step in range(10):
            time.sleep(0.1)
            x = torch.ones(1)
            dist.all_reduce(x)
            seen.append(x.item())
            if decide(time.monotonic() - saved, step):
                dist.barrier()
                saved = time.monotonic()
        return seen

    return f


def bc(el, step):
    y = torch.tensor([float(el > 0.4)])
    dist.broadcast(y, 0)
    return bool(y)


g5 = base5(bc)
b5start = base5(lambda e, s: e > 0.4, start=lambda: dist.barrier())
b5every = base5(lambda e, s: True)
b5none = base5(lambda e, s: False)


def b5nosleep():
    saved, seen = time.monotonic(), []
    for _ in range(10):
        time.sleep(0.1)
        x = torch.ones(1)
        dist.all_reduce(x)
        seen.append(x.item())
        if time.monotonic() - saved > 0.4:
            dist.barrier()
            saved = time.monotonic()
    return seen


def g6():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    for b in range(math.ceil(math.ceil(4097 / n) / 256)):
        x = torch.tensor([float(len(items[b * 256 : (b + 1) * 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    dist.barrier()
    return c


def g6max():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    m = torch.tensor([math.ceil(len(items) / 256)])
    dist.all_reduce(m, op=dist.ReduceOp.MAX)
    for b in range(int(m)):
        x = torch.tensor([float(len(items[b * 256 : (b + 1) * 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    return c


def g6one():
    r, n = dist.get_rank(), dist.get_world_size()
    items, starts = range(r, 4097, n), range(0, math.ceil(4097 / n), 256)
    counts = torch.tensor([float(len(items[start : start + 256])) for start in starts])
    dist.all_reduce(counts)
    dist.barrier()
    return counts.tolist()


def b6five():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    for b in range(5):
        x = torch.tensor([float(len(items[b * 256 : (b + 1) * 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    dist.barrier()
    return c


def b6barrier():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    for b in range(math.ceil(math.ceil(4097 / n) / 256)):
        x = torch.tensor([float(len(items[b * 256 : (b + 1) * 256]))])
        dist.barrier()
        dist.all_reduce(x)
        c.append(x.item())
    return c


def b6drop():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4096, n)
    c = []
    for b in range(4096 // n // 256):
        x = torch.tensor([float(len(items[b * 256 : (b + 1) * 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    dist.barrier()
    return c


def b6rank0():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    for s in range(0, len(items), 256):
        x = torch.tensor([float(len(items[s : s + 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    if r:
        x = torch.zeros(1)
        dist.all_reduce(x)
        c.append(x.item())
    dist.barrier()
    return c


def b6nobarrier():
    n, r = dist.get_world_size(), dist.get_rank()
    items = range(r, 4097, n)
    c = []
    for s in range(0, len(items), 256):
        x = torch.tensor([float(len(items[s : s + 256]))])
        dist.all_reduce(x)
        c.append(x.item())
    return c


def b6const():
    n = dist.get_world_size()
    return [256.0 * n] * (4096 // (256 * n)) + [1.0]
