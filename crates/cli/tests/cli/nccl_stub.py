# Plays NCCL 2.28: loads the profiler that NCCL_PROFILER_PLUGIN names and reports all-reduces, in which rank 0 waits for rank 1.
import ctypes, os, struct, sys, time
rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
library = ctypes.CDLL(os.environ["NCCL_PROFILER_PLUGIN"])
table = (ctypes.c_void_p * 6).in_dll(library, "ncclProfiler_v6")
void, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
init = ctypes.CFUNCTYPE(integer, void, ctypes.c_uint64, void, text, integer, integer, integer, void)(table[1])
start = ctypes.CFUNCTYPE(integer, void, void, void)(table[2])
stop = ctypes.CFUNCTYPE(integer, void)(table[3])
record = ctypes.CFUNCTYPE(integer, void, integer, void)(table[4])
finalize = ctypes.CFUNCTYPE(integer, void)(table[5])
context, mask = void(), integer()
assert init(ctypes.byref(context), 42, ctypes.byref(mask), b"world", 1, ranks, rank, None) == 0 and context.value
op, float32 = text(b"AllReduce"), text(b"ncclFloat32")
address = lambda held: ctypes.cast(held, void).value
def event(kind, parent, body):
    event = ctypes.create_string_buffer(struct.pack("<QQI4x", kind, parent or 0, rank) + body, 160)
    handle = void()
    assert start(context, ctypes.byref(handle), event) == 0
    return handle
print("step 1", flush=True)
until, number = time.time() + float(sys.argv[1]), 0
while time.time() < until:
    body = struct.pack("<QQ16xQ8xQB", number, address(op), 1 << 24, address(float32), 1)
    handle = event(2, None, body)
    stop(handle)
    begun = ctypes.c_uint64(time.time_ns())
    channel = event(64, handle.value, struct.pack("<QQ", 0, begun.value))
    ended = ctypes.c_uint64(begun.value + (9_000_000 if rank == 0 else 500_000))
    record(channel, 22, ctypes.byref(ended))
    stop(channel)
    number += 1
    time.sleep(0.01)
finalize(context)
