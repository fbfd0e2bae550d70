// memory SEED SECONDS: allocates, sends, reallocates and frees at random, with whatever malloc the
// process has, by a library that keeps freed buffers registered (memory.h). Two processes do the
// same, each with its own bytes. After each step all buffers have the bytes that they should have,
// and memory of calloc() is zero. Prints the number of steps.
#include "tests/interop/stack/memory.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { kBuffers = 24, kMost = 3 << 19, kStepsBetweenLooks = 16 };

struct Buffer {
  uint8_t* data;
  uint8_t* right[kMostSides];  // what it should have on each side, in memory never registered
  size_t size;
};
static struct Buffer buffers[kBuffers];
static uint64_t state;
static unsigned long steps;
static int sides, side;

void fail(const char* what) {
  printf("FAILED in step %lu: %s\n", steps, what);
  exit(1);
}
static uint64_t below(uint64_t most) {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return (state >> 33) % most;
}
static void fill(struct Buffer* buffer, size_t from) {
  if (from >= buffer->size) return;
  for (int each = 0; each < sides; ++each)
    for (size_t i = from; i < buffer->size; ++i) buffer->right[each][i] = (uint8_t)(below(255) + 1);
  memcpy(buffer->data + from, buffer->right[side] + from, buffer->size - from);
}
// Mostly small ones; some that malloc maps by themselves.
static size_t some_size(void) {
  return below(3) == 0 ? 200000 + below(kMost - 200000) : 1 + below(70000);
}

static void make(struct Buffer* buffer, int zeroed) {
  buffer->size = some_size();
  buffer->data = zeroed ? calloc(1, buffer->size) : malloc(buffer->size);
  if (buffer->data == NULL) fail("malloc");
  if (zeroed)
    for (size_t i = 0; i < buffer->size; ++i)
      if (buffer->data[i] != 0) fail("memory of calloc() is not zero");
  fill(buffer, 0);
}
static void resize(struct Buffer* buffer) {
  const size_t before = buffer->size;
  buffer->size = below(2) == 0 ? some_size() : before + below(kMost - before + 1);
  buffer->data = realloc(buffer->data, buffer->size);
  if (buffer->data == NULL) fail("realloc");
  fill(buffer, before);
}
static void send(const struct Buffer* from, struct Buffer* to) {
  const size_t size = from->size < to->size ? from->size : to->size;
  exchange(from->data, to->data, size);
  for (int each = 0; each < sides; ++each)
    memcpy(to->right[each], from->right[sides - 1 - each], size);
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  state = strtoull(argv[1], NULL, 0);
  const time_t over = time(NULL) + atoi(argv[2]);
  begin(&sides, &side);
  for (int i = 0; i < kBuffers; ++i)
    for (int each = 0; each < sides; ++each)
      buffers[i].right[each] =
          mmap(NULL, kMost, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (; steps % kStepsBetweenLooks != 0 || !on_any_side(time(NULL) >= over); ++steps) {
    struct Buffer* const one = &buffers[below(kBuffers)];
    struct Buffer* const other = &buffers[below(kBuffers)];
    if (one->data == NULL) {
      make(one, below(2) == 0);
    } else if (one != other && other->data != NULL && below(2) == 0) {
      send(one, other);
    } else if (below(2) == 0) {
      resize(one);
    } else {
      free(one->data);
      one->data = NULL;
    }
    for (int i = 0; i < kBuffers; ++i)
      if (buffers[i].data != NULL &&
          memcmp(buffers[i].data, buffers[i].right[side], buffers[i].size) != 0)
        fail("a buffer has other bytes than it should");
  }
  end();
  if (side == 0) printf("%lu steps\n", steps);
  return 0;
}
