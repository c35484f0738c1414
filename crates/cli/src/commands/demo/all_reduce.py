"""All-reduces 64 MiB a few times and prints the bus bandwidth: what `weftrun demo` runs where GPUs are."""
import os
import time

import torch
import torch.distributed as dist

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
rank, world = dist.get_rank(), dist.get_world_size()
data = torch.ones(64 << 18, device="cuda")  # 64 MiB of float32
for _ in range(5):
    dist.all_reduce(data)
torch.cuda.synchronize()
rounds = 20
began = time.perf_counter()
for _ in range(rounds):
    dist.all_reduce(data)
torch.cuda.synchronize()
seconds = (time.perf_counter() - began) / rounds
if rank == 0:
    moved = data.numel() * data.element_size() * 2 * (world - 1) / world
    print(f"busbw_GBps {moved / seconds / 1e9:.2f}", flush=True)
dist.destroy_process_group()
