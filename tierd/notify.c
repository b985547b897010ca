/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the service manager is told; nothing happens where there is none, or where the daemon was
 * built without libsystemd.
 */
#include <stdarg.h>
#include <stdio.h>

#include "tierd/shell.h"

#if TIER_HAVE_SYSTEMD
#include <systemd/sd-daemon.h>

static void tell(const char *state)
{
	sd_notify(0, state);
}
#else
static void tell(const char *state)
{
	(void)state;
}
#endif

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
