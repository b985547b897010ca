/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SIGBUS inside guarded work leads out of it; anywhere else it ends the process, as ever. The mask
 * is not saved: the handler does not block its own signal, so nothing is to be restored, and a
 * guard costs no system call.
 */
#include "tierd/fault.h"

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

static _Thread_local sigjmp_buf *guard; /* NULL: this thread does no such work now */

static void on_bus(int number, siginfo_t *info, void *context)
{
	(void)context;
	if (info->si_code == BUS_MCEERR_AO)
		return; /* poison that nobody has touched: who does so is told */
	if (guard && info->si_code > 0)
		siglongjmp(*guard, 1);
	signal(number, SIG_DFL); /* the fault comes again */
	if (info->si_code <= 0)
		raise(number);
}

int fault_open(void)
{
	struct sigaction action = { .sa_sigaction = on_bus, .sa_flags = SA_SIGINFO | SA_NODEFER };

	return sigaction(SIGBUS, &action, NULL) ? -errno : 0;
}

int fault_guard(void (*work)(void *arg), void *arg)
{
	sigjmp_buf out;

	if (sigsetjmp(out, 0)) {
		guard = NULL;
		return -EIO;
	}
	guard = &out;
	work(arg);
	guard = NULL;
	return 0;
}
