/* Vector registers must survive everything that hands control to the guest kernel: system calls, switches between threads
 * of one address space, page faults, signal handlers that use them, fork. Prints "ok", or what was lost. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define N 16
struct set { uint64_t v[N][2]; };

static void load(const struct set *s)
{
	__asm__ volatile(
		"movdqu 0(%0),%%xmm0\n movdqu 16(%0),%%xmm1\n movdqu 32(%0),%%xmm2\n movdqu 48(%0),%%xmm3\n"
		"movdqu 64(%0),%%xmm4\n movdqu 80(%0),%%xmm5\n movdqu 96(%0),%%xmm6\n movdqu 112(%0),%%xmm7\n"
		"movdqu 128(%0),%%xmm8\n movdqu 144(%0),%%xmm9\n movdqu 160(%0),%%xmm10\n movdqu 176(%0),%%xmm11\n"
		"movdqu 192(%0),%%xmm12\n movdqu 208(%0),%%xmm13\n movdqu 224(%0),%%xmm14\n movdqu 240(%0),%%xmm15\n"
		:: "r"(s) : "memory");
}

static void store(struct set *s)
{
	__asm__ volatile(
		"movdqu %%xmm0,0(%0)\n movdqu %%xmm1,16(%0)\n movdqu %%xmm2,32(%0)\n movdqu %%xmm3,48(%0)\n"
		"movdqu %%xmm4,64(%0)\n movdqu %%xmm5,80(%0)\n movdqu %%xmm6,96(%0)\n movdqu %%xmm7,112(%0)\n"
		"movdqu %%xmm8,128(%0)\n movdqu %%xmm9,144(%0)\n movdqu %%xmm10,160(%0)\n movdqu %%xmm11,176(%0)\n"
		"movdqu %%xmm12,192(%0)\n movdqu %%xmm13,208(%0)\n movdqu %%xmm14,224(%0)\n movdqu %%xmm15,240(%0)\n"
		:: "r"(s) : "memory");
}

static void fill(struct set *s, uint64_t seed)
{
	for (int i = 0; i < N; i++) {
		s->v[i][0] = seed * 0x9e3779b97f4a7c15u + i;
		s->v[i][1] = ~s->v[i][0];
	}
}

static long call(long number, long a, long b, long c)
{
	long result;
	__asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return result;
}

static volatile int wrong;
static volatile sig_atomic_t handled;

static void check(const char *what, struct set *in)
{
	struct set out;
	store(&out);
	if (memcmp(in, &out, sizeof out)) {
		printf("lost after %s\n", what);
		fflush(stdout);
		wrong = 1;
	}
}

static void handler(int number)
{
	struct set own;
	(void)number;
	fill(&own, 999);
	load(&own);
	call(24 /* sched_yield */, 0, 0, 0);
	handled++;
}

static void *worker(void *arg)
{
	struct set own;
	fill(&own, (uintptr_t)arg);
	for (int i = 0; i < 200 && !wrong; i++) {
		load(&own);
		call(24 /* sched_yield */, 0, 0, 0);
		check("a switch between threads", &own);
	}
	return NULL;
}

int main(void)
{
	struct set own;
	pthread_t threads[4];
	int status;
	fill(&own, 1);

	load(&own);
	call(39 /* getpid */, 0, 0, 0);
	check("a system call", &own);

	for (uintptr_t i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, worker, (void *)(i + 2));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);

	char *page = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 256; i++) {
		load(&own);
		*(volatile char *)(page + i * 4096) = 1;
		check("a page fault", &own);
	}

	signal(SIGUSR1, handler);
	load(&own);
	call(62 /* kill */, getpid(), SIGUSR1, 0);
	check("a signal handler", &own);
	if (handled != 1)
		wrong = 1;

	load(&own);
	long child = call(57 /* fork */, 0, 0, 0);
	check(child ? "fork, in the parent" : "fork, in the child", &own);
	if (child == 0)
		_exit(wrong);
	load(&own);
	call(61 /* wait4 */, child, (long)&status, 0);
	check("waiting for another process", &own);
	if (status)
		wrong = 1;
	puts(wrong ? "wrong" : "ok");
	return wrong;
}
