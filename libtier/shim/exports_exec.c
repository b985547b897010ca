/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that end descriptors by the dozen: exec, close_range, closefrom. The C library's own calls
 * among these do not come by here, so that each is taken.
 */
#include <alloca.h>
#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

#include "libtier/shim/shim.h"

#define EXEC(name, parameters, arguments)                                                 \
	EXPORT int name parameters                                                        \
	{                                                                                 \
		if (!shim_passes())                                                       \
			shim_exec();                                                      \
		return REAL(name, int(*) parameters) arguments;                           \
	}
EXEC(execve, (const char *path, char *const argv[], char *const env[]), (path, argv, env))
EXEC(execv, (const char *path, char *const argv[]), (path, argv))
EXEC(execvp, (const char *file, char *const argv[]), (file, argv))
EXEC(execvpe, (const char *file, char *const argv[], char *const env[]), (file, argv, env))
EXEC(execveat, (int at, const char *path, char *const argv[], char *const env[], int f),
	(at, path, argv, env, f))
EXEC(fexecve, (int fd, char *const argv[], char *const env[]), (fd, argv, env))

/* The arguments of execl, execlp and execle: counted, then put into an array on the stack. */
static size_t count_arguments(const char *first, va_list args)
{
	size_t n = 1;

	for (const char *at = first; at; at = va_arg(args, const char *))
		n++;
	return n;
}

static void take_arguments(char **argv, size_t n, const char *first, va_list args)
{
	argv[0] = (char *)(uintptr_t)first;
	for (size_t i = 1; i < n; i++)
		argv[i] = va_arg(args, char *);
}

#define EXECL(name, call, has_env)                                                        \
	EXPORT int name(const char *path, const char *first, ...)                         \
	{                                                                                 \
		char *const *env = environ;                                               \
		va_list args;                                                             \
		char **argv;                                                              \
		size_t n;                                                                 \
		va_start(args, first);                                                    \
		n = count_arguments(first, args);                                         \
		va_end(args);                                                             \
		argv = alloca(n * sizeof(*argv));                                         \
		va_start(args, first);                                                    \
		take_arguments(argv, n, first, args);                                     \
		if (has_env)                                                              \
			env = va_arg(args, char *const *);                                \
		va_end(args);                                                             \
		return call(path, argv, (char **)(uintptr_t)env);                         \
	}
EXECL(execl, execve, 0)
EXECL(execle, execve, 1)
EXECL(execlp, execvpe, 0)

/* Our own connection goes with the others, and is made anew. */
EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (!shim_passes() && first <= last && !(flags & (int)CLOSE_RANGE_CLOEXEC))
		shim_close_range(first, last);
	return REAL(close_range, int (*)(unsigned, unsigned, int))(first, last, flags);
}

EXPORT void closefrom(int first)
{
	if (!shim_passes())
		shim_close_range(first < 0 ? 0 : (unsigned)first, UINT_MAX);
	REAL(closefrom, void (*)(int))(first);
}
