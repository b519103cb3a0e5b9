/*
 * Loaded into User-Mode Linux, which runs its processes by ptrace, before libc.
 *
 * It sets their vector registers with a buffer of 2,696 bytes, as wide as they were with
 * AVX-512. A host whose processor has wider ones (AMX: 11,008 bytes) takes nothing but
 * all of them, and says EFAULT: the guest's init dies. Here the rest is asked for, and
 * given back as it was.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>

typedef long (*ptrace_function)(enum __ptrace_request, pid_t, void *, void *);

/* Not on the stack: those of the guest's kernel are small. It is one thread. */
static char registers[64 * 1024];

static long set_all(ptrace_function next, pid_t pid, const struct iovec *some)
{
	struct iovec all = { registers, sizeof(registers) };

	if (next(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &all) < 0)
		return -1;
	if (some->iov_len > all.iov_len) {
		errno = EFAULT;
		return -1;
	}
	memcpy(registers, some->iov_base, some->iov_len);
	return next(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &all);
}

long ptrace(enum __ptrace_request request, ...)
{
	static ptrace_function next;
	va_list arguments;

	va_start(arguments, request);
	pid_t pid = va_arg(arguments, pid_t);
	void *address = va_arg(arguments, void *);
	void *data = va_arg(arguments, void *);
	va_end(arguments);

	if (!next)
		next = (ptrace_function)dlsym(RTLD_NEXT, "ptrace");
	long done = next(request, pid, address, data);
	if (done < 0 && errno == EFAULT && request == PTRACE_SETREGSET &&
	    address == (void *)NT_X86_XSTATE)
		return set_all(next, pid, data);
	return done;
}
