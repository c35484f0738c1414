// Plays NCCL: loads the profiler that NCCL_PROFILER_PLUGIN names and reports all-reduces, in which all ranks wait for rank 1.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct table {
  const char *name;
  int (*init)(void **, uint64_t, int *, const char *, int, int, int, void *);
  int (*start)(void *, void **, void *);
  int (*stop)(void *);
  int (*record)(void *, int, void *);
  int (*finalize)(void *);
};
// The part of ncclProfilerEventDescr_v6 that the library reads.
struct event {
  uint64_t kind;
  void *parent;
  uint32_t rank, pad;
  union {
    struct { uint64_t number; const char *name; void *buffers[2]; uint64_t count; uint64_t root; const char *type; uint8_t channels; } collective;
    struct { uint64_t channel, begun; } channel;
    char all[128];
  } is;
};

static uint64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_REALTIME, &time);
  return time.tv_sec * 1000000000ull + time.tv_nsec;
}

int main(int count, char **words) {
  int rank = atoi(getenv("RANK")), ranks = atoi(getenv("WORLD_SIZE")), mask = 0;
  void *library = dlopen(getenv("NCCL_PROFILER_PLUGIN"), RTLD_NOW), *context = 0;
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 3;
  struct table *table = dlsym(library, "ncclProfiler_v6");
  if (!table || table->init(&context, 42, &mask, "world", 1, ranks, rank, 0) || !context) return 4;
  printf("step 1\n");
  fflush(stdout);
  uint64_t until = now() + (count > 1 ? strtoull(words[1], 0, 10) : 60) * 1000000000ull;
  for (uint64_t number = 0; now() < until; number++) {
    void *operation = 0, *channel = 0;
    struct event event = {.kind = 2, .rank = rank, .is.collective = {.number = number, .name = "AllReduce", .count = 1 << 24, .type = "ncclFloat32", .channels = 1}};
    table->start(context, &operation, &event);
    table->stop(operation);
    struct event part = {.kind = 64, .parent = operation, .rank = rank, .is.channel = {0, now()}};
    table->start(context, &channel, &part);
    uint64_t ended = part.is.channel.begun + (rank == 1 ? 500000 : 9000000);
    table->record(channel, 22, &ended);
    table->stop(channel);
    usleep(10000);
  }
  return table->finalize(context);
}
