/* An all-reduce of 4 MB of floats with MPI, checked and timed as nccl-tests does.
 *
 *     mpicc -O2 -o allreduce_mpi examples/allreduce_mpi.c
 *     fabriclab exec topologies/leaf-spine-2x2x4.yaml --ranks 4 --mpi -- ./allreduce_mpi
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, ranks, wrong = 0, count = argc > 1 ? atoi(argv[1]) : 1000000;
	float *in = malloc(count * sizeof *in), *out = malloc(count * sizeof *out);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (int i = 0; i < count; i++)
		in[i] = rank + i % 7;
	MPI_Barrier(MPI_COMM_WORLD);
	double start = MPI_Wtime();
	MPI_Allreduce(in, out, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
	double took = MPI_Wtime() - start;
	for (int i = 0; i < count; i++)
		wrong += out[i] != ranks * (ranks - 1) / 2 + ranks * (i % 7);
	if (rank == 0) {
		double bits = 8.0 * count * sizeof *in;
		printf("%d ranks, %.1f MB: %.3f us, busbw %.2f Gbit/s\n", ranks, bits / 8e6, took * 1e6,
		       bits * 2 * (ranks - 1) / ranks / took / 1e9);
	}
	printf("rank %d: %d wrong\n", rank, wrong);
	MPI_Finalize();
	return wrong != 0;
}
