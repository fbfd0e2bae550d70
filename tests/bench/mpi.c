/* mpi BYTES ITERATIONS: two ranks that send a message to and fro. Rank 0 prints the median of
 * half a round trip in microseconds. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

int main(int argc, char** argv) {
  int rank = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  const int size = argc == 3 ? atoi(argv[1]) : 0, count = argc == 3 ? atoi(argv[2]) : 0;
  if (size <= 0 || count <= 0) MPI_Abort(MPI_COMM_WORLD, 2);
  char* const message = malloc((size_t)size);
  double* const times = malloc((size_t)count * sizeof *times);
  memset(message, 0, (size_t)size);
  const int warm = count / 10;
  for (int i = -warm; i < count; ++i) {
    const double begin = MPI_Wtime();
    if (rank == 0) MPI_Send(message, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(message, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(message, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (i >= 0) times[i] = (MPI_Wtime() - begin) / 2 * 1e6;
  }
  qsort(times, (size_t)count, sizeof *times, compare);
  if (rank == 0) printf("%.4f\n", times[count / 2]);
  free(times);
  free(message);
  MPI_Finalize();
  return 0;
}
