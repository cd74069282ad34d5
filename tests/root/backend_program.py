"""What every rank of a test runs: each call of the backend against what it must give; names of what there is not."""

from __future__ import annotations

import torch
import torch.distributed as dist

import traffic.torch
from traffic.torch.group import NotSupported

dist.init_process_group(traffic.torch.NAME)
rank, world = dist.get_rank(), dist.get_world_size()
assert dist.get_backend() == traffic.torch.NAME

for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
    for count in (1, 5, 3001):
        base = torch.arange(count, dtype=dtype) % 50
        got = base + rank
        dist.all_reduce(got)
        assert torch.equal(got, world * base + world * (world - 1) // 2), (dtype, count)
for op, want in (
    (dist.ReduceOp.MAX, world),
    (dist.ReduceOp.MIN, 1),
    (dist.ReduceOp.PRODUCT, 6),
    (dist.ReduceOp.AVG, 2),
):
    got = torch.tensor([rank + 1.0])
    dist.all_reduce(got, op)
    assert got.item() == want, op

matrix = torch.full((3, 4), float(rank)).t()  # not contiguous
work = dist.all_reduce(matrix, async_op=True)
work.wait()
assert matrix.shape == (4, 3) and (matrix == 3).all()

parts = [torch.zeros(7, dtype=torch.bfloat16) for _ in range(world)]
dist.all_gather(parts, torch.full((7,), rank, dtype=torch.bfloat16))
assert [p[0].item() for p in parts] == list(range(world))
whole = torch.zeros(2 * world)
dist.all_gather_into_tensor(whole, torch.full((2,), float(rank)))
assert whole.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0]

mine = torch.zeros(2)
dist.reduce_scatter(mine, [torch.full((2,), float(i)) for i in range(world)])
assert mine.tolist() == [world * rank] * 2
dist.reduce_scatter_tensor(mine, torch.arange(2.0 * world))
assert mine.tolist() == [world * 2.0 * rank, world * (2.0 * rank + 1)]

flags = torch.tensor([rank == 1, True, False])
dist.broadcast(flags, src=1)
assert flags.tolist() == [True, True, False]

if rank == 0:
    dist.send(torch.arange(1000.0), dst=2)
    dist.send(torch.ones(3), dst=2, tag=4)
elif rank == 2:
    long, short = torch.zeros(1000), torch.zeros(3)
    dist.recv(long, src=0)
    dist.recv(short, src=0, tag=4)
    assert torch.equal(long, torch.arange(1000.0)) and short.sum() == 3
dist.barrier()

pair = dist.new_group([0, 2])
if rank != 1:
    value = torch.tensor([float(rank)])
    dist.all_reduce(value, group=pair)
    assert value.item() == 2.0

for name, call in {
    "gather": lambda: dist.gather(torch.ones(1), [torch.ones(1) for _ in range(world)] if rank == 0 else None),
    "scatter": lambda: dist.scatter(torch.ones(1), [torch.ones(1) for _ in range(world)] if rank == 0 else None),
    "alltoall": lambda: dist.all_to_all([torch.ones(1)] * world, [torch.ones(1)] * world),
    "reduce": lambda: dist.reduce(torch.ones(1), 0),
    "bfloat16": lambda: dist.all_reduce(torch.ones(1, dtype=torch.bfloat16)),
    "BAND": lambda: dist.all_reduce(torch.ones(1, dtype=torch.int32), dist.ReduceOp.BAND),
}.items():
    try:
        call()
    except NotSupported as error:
        assert name in str(error), (name, error)
    else:
        raise AssertionError(f"{name} was not refused")
dist.destroy_process_group()
print("all right")
