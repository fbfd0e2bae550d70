// memory.c by MPI: two ranks.
#include <mpi.h>

#include "tests/interop/stack/memory.h"

static int peer;

void begin(int* sides, int* side) {
  MPI_Init(NULL, NULL);
  MPI_Comm_size(MPI_COMM_WORLD, sides);
  MPI_Comm_rank(MPI_COMM_WORLD, side);
  if (*sides != kMostSides) fail("two ranks are needed");
  peer = 1 - *side;
}

void exchange(const void* out, void* in, size_t size) {
  MPI_Sendrecv(out, (int)size, MPI_BYTE, peer, 1, in, (int)size, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
               MPI_STATUS_IGNORE);
}

int on_any_side(int so) {
  MPI_Allreduce(MPI_IN_PLACE, &so, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  return so;
}

void end(void) { MPI_Finalize(); }
