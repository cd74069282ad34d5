/*
 * Preloaded into programs of `exec` on the virtual clock: std::random_device of the C++ library takes its numbers from the
 * kernel instead of from the processor (rdseed, rdrand), and the guest's kernel draws them from the seed of the run.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

/* unsigned int std::random_device::_M_getval() */
unsigned int _ZNSt13random_device9_M_getvalEv(void *self)
{
	unsigned int number;

	(void)self;
	while (getrandom(&number, sizeof(number), 0) != sizeof(number))
		if (errno != EINTR)
			abort();
	return number;
}
