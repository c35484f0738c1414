"""Measures collectives with PyTorch, and prints the table that nccl-tests prints. Started once for each rank."""
import os
import sys
import time

import torch
import torch.distributed as dist

collectives, low, high, rounds = sys.argv[1].split(","), int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rank, world, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
device = torch.device("cuda", local)
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)


def say(text):
    if rank == 0:
        print(text, flush=True)


def buffers(name, count):
    """Returns the input, the output, and what each element of the output has to be."""
    if name == "all_gather":
        return torch.ones(count // world, device=device), torch.zeros(count, device=device), 1.0
    whole = torch.ones(count, device=device)
    if name == "all_reduce":
        return whole, whole, float(world)
    if name == "reduce_scatter":
        return whole, torch.zeros(count // world, device=device), float(world)
    return whole, torch.zeros(count, device=device), 1.0


def run(name, send, receive):
    if name == "all_reduce":
        dist.all_reduce(send)
    elif name == "reduce_scatter":
        dist.reduce_scatter_tensor(receive, send)
    elif name == "all_gather":
        dist.all_gather_into_tensor(receive, send)
    else:
        dist.all_to_all_single(receive, send)


hosts = [None] * world
dist.all_gather_object(hosts, (os.uname().nodename, torch.cuda.get_device_name(device)))
for index, (host, gpu) in enumerate(hosts):
    say(f"#  Rank {index:2d} Group  0 Pid {os.getpid() if index == 0 else 0:6d} on {host} device {local if index == rank else 0} {gpu}")
for name in collectives:
    say(f"# weftrun-verify {name} with PyTorch {torch.__version__}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}")
    say("#       size         count      type   redop    root     time   algbw   busbw  #wrong")
    size = low
    while size <= high:
        count = -(-size // 4 // world) * world
        fits = torch.ones(1, device=device)
        try:
            send, receive, wanted = buffers(name, count)
        except torch.cuda.OutOfMemoryError:
            fits.zero_()
        # One rank without memory would leave the others waiting in the operation.
        dist.all_reduce(fits, op=dist.ReduceOp.MIN)
        if not fits.item():
            say(f"# size {count * 4} does not fit into the memory of every GPU")
            break
        run(name, send, receive)
        # In parts: the comparison of a whole buffer needs more memory than the buffer.
        wrong = sum(torch.count_nonzero(part != wanted) for part in receive.split(1 << 26)).reshape(1)
        dist.all_reduce(wrong)
        for _ in range(2):
            run(name, send, receive)
        torch.cuda.synchronize()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(rounds):
            run(name, send, receive)
        torch.cuda.synchronize()
        took = torch.tensor([(time.perf_counter() - began) / rounds], device=device)
        dist.all_reduce(took, op=dist.ReduceOp.MAX)
        seconds = took.item()
        algorithm = count * 4 / seconds / 1e9
        factor = (2 if name == "all_reduce" else 1) * (world - 1) / world
        kind = "sum" if "reduce" in name else "none"
        say(f"{count * 4:12d} {count:13d} {'float':>9} {kind:>7} {-1:7d} {seconds * 1e6:8.1f} {algorithm:7.2f} {algorithm * factor:7.2f} {int(wrong.item()):7d}")
        del send, receive
        size *= 2
dist.destroy_process_group()
