/* mpi.c ring|allreduce|onesided: two or more ranks; every byte is compared. Ends with 0, or aborts.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size;

static void check(int ok, const char* what) {
  if (ok) return;
  fprintf(stderr, "rank %d: %s\n", rank, what);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

static unsigned char byte_of(int owner, int lap, size_t at) {
  return (unsigned char)(owner * 31 + lap * 7 + (int)(at % 251));
}

/* What each rank made goes once around, eager and by rendezvous. */
static void ring(void) {
  static const int lengths[] = {0, 1, 1000, 100000, 4 << 20};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    const int length = lengths[i];
    unsigned char *have = malloc((size_t)length + 1), *get = malloc((size_t)length + 1);
    for (int at = 0; at < length; ++at) have[at] = byte_of(rank, (int)i, (size_t)at);
    for (int hop = 1; hop <= size; ++hop) {
      MPI_Sendrecv(have, length, MPI_BYTE, (rank + 1) % size, 1, get, length, MPI_BYTE,
                   (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      const int owner = (rank + size * 2 - hop) % size;
      for (int at = 0; at < length; ++at)
        check(get[at] == byte_of(owner, (int)i, (size_t)at), "the ring changed a byte");
      unsigned char* last = have;
      have = get;
      get = last;
    }
    free(have);
    free(get);
  }
}

static void allreduce(void) {
  static const int lengths[] = {1, 1000, 300000};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; ++i) {
    const int length = lengths[i];
    long *mine = malloc((size_t)length * sizeof *mine), *sum = malloc((size_t)length * sizeof *sum);
    for (int at = 0; at < length; ++at) mine[at] = (long)(rank + 1) * (at + 1);
    MPI_Allreduce(mine, sum, length, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int at = 0; at < length; ++at)
      check(sum[at] == (long)size * (size + 1) / 2 * (at + 1), "a sum is wrong");
    free(mine);
    free(sum);
  }
}

/* Into and out of the next rank's window, and a counter at rank 0. */
static void onesided(void) {
  enum { kBytes = 1 << 20 };
  unsigned char *window, *back = malloc(kBytes), *mine = malloc(kBytes);
  MPI_Win memory, counting;
  long* counter;
  MPI_Win_allocate(kBytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window, &memory);
  MPI_Win_allocate(sizeof *counter, sizeof *counter, MPI_INFO_NULL, MPI_COMM_WORLD, &counter,
                   &counting);
  memset(window, 0, kBytes);
  *counter = 0;
  for (size_t at = 0; at < kBytes; ++at) mine[at] = byte_of(rank, 1, at);
  MPI_Win_fence(0, memory);
  MPI_Put(mine, kBytes, MPI_BYTE, (rank + 1) % size, 0, kBytes, MPI_BYTE, memory);
  MPI_Win_fence(0, memory);
  for (size_t at = 0; at < kBytes; ++at)
    check(window[at] == byte_of((rank + size - 1) % size, 1, at), "a put changed a byte");
  MPI_Get(back, kBytes, MPI_BYTE, (rank + 1) % size, 0, kBytes, MPI_BYTE, memory);
  MPI_Win_fence(0, memory);
  check(memcmp(back, mine, kBytes) == 0, "a get does not bring what was put");

  MPI_Barrier(MPI_COMM_WORLD);
  const long one = 1;
  long before;
  MPI_Win_lock_all(0, counting);
  for (int i = 0; i < 50; ++i) {
    MPI_Fetch_and_op(&one, &before, MPI_LONG, 0, 0, MPI_SUM, counting);
    MPI_Win_flush(0, counting);
  }
  MPI_Win_unlock_all(counting);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, counting);
    check(*counter == 50L * size, "an increment is lost");
    MPI_Win_unlock(0, counting);
  }
  MPI_Win_free(&counting);
  MPI_Win_free(&memory);
  free(back);
  free(mine);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  check(argc == 2 && size >= 2, "usage: mpi ring|allreduce|onesided, by two ranks or more");
  if (strcmp(argv[1], "ring") == 0)
    ring();
  else if (strcmp(argv[1], "allreduce") == 0)
    allreduce();
  else if (strcmp(argv[1], "onesided") == 0)
    onesided();
  else
    check(0, "no such program");
  MPI_Finalize();
  return 0;
}
