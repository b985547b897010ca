/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager is told; nothing happens where there is none, or where the daemon was
 * built without libsystemd.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tierd/shell.h"

#if TIER_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

#define BARRIER_US 5000000u

static void tell(const char *state)
{
	sd_notify(0, state);
}

static int tell_with(const char *state, const int *fd)
{
	int rc = sd_pid_notify_with_fds(0, 0, state, fd, 1);

	return rc > 0 ? 0 : rc ? rc : -ENOTCONN;
}

void notify_barrier(void)
{
	sd_notify_barrier(0, BARRIER_US);
}
#else
static void tell(const char *state)
{
	(void)state;
}

static int tell_with(const char *state, const int *fd)
{
	(void)state;
	(void)fd;
	return -ENOTCONN;
}

void notify_barrier(void)
{
}
#endif

bool notify_keeps(void)
{
	return TIER_HAVE_SYSTEMD && getenv("NOTIFY_SOCKET");
}

/* FDPOLL=0: a process that ends makes its pidfd readable, and is known by that. */
int notify_keep(const char *name, int fd)
{
	char state[96];

	snprintf(state, sizeof(state), "FDSTORE=1\nFDPOLL=0\nFDNAME=%s", name);
	return tell_with(state, &fd);
}

void notify_forget(const char *name)
{
	char state[96];

	snprintf(state, sizeof(state), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	tell(state);
}

void notify_ready(const char *status)
{
	char state[256];

	snprintf(state, sizeof(state), "READY=1\nSTATUS=%s", status);
	tell(state);
}

/* During start-up, which may take long: it also asks for more time. */
void notify_status(const char *format, ...)
{
	char text[160], state[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	snprintf(state, sizeof(state), "STATUS=%s\nEXTEND_TIMEOUT_USEC=60000000", text);
	tell(state);
}

void notify_stopping(void)
{
	tell("STOPPING=1\nSTATUS=writing what is dirty");
}
