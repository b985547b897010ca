/*
 * Thread-local error text and the fixed texts of our errnos; see error.h.
 *
 * The state is per thread because the API promises a text per thread; nothing else in the library
 * lives outside a handle, but the handler of a signal (taken.c).
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "libtier/src/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <tier.h>

#define ERROR_TEXT_BYTES 512

static _Thread_local struct {
	const char *text; /* NULL: nothing failed yet */
	char buffer[ERROR_TEXT_BYTES];
} last;

int error_set(int error, const char *format, ...)
{
	char text[ERROR_TEXT_BYTES];
	va_list args;

	/* Through a second buffer: an argument may be the text that is being replaced. */
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	memcpy(last.buffer, text, strlen(text) + 1);
	last.text = last.buffer;
	return error;
}

int error_note(int error, const char *text)
{
	last.text = text;
	return error;
}

const char *tier_error_text(void)
{
	return last.text ? last.text : "no error";
}

const char *tier_strerror(int error)
{
	static const struct {
		int error;
		const char *text;
	} texts[] = {
		{ 0, "success" },
		{ EACCES, "not allowed by the owner of the object" },
		{ EAGAIN, "no room at this moment; try again" },
		{ EBADMSG, "the bytes are not those that are stored under the key" },
		{ EBUSY, "somebody else has it, or too many ask; try again" },
		{ ECANCELED, "canceled" },
		{ ECONNREFUSED, "no daemon listens on the socket" },
		{ EDQUOT, "over a limit of the daemon's (pin.percent, client.pins, client.puts, "
			  "user.contexts or quarantine.percent: tierctl status)" },
		{ EEXIST, "exists already" },
		{ EFBIG, "larger than what memory objects may have" },
		{ EINVAL, "invalid argument" },
		{ EIO, "the store's device failed" },
		{ EMFILE, "too many open files in this process: ulimit -n" },
		{ EMSGSIZE, "larger than it can ever have" },
		{ ENOBUFS, "the staging arena is full" },
		{ ENODATA, "the page is not in memory now" },
		{ ENODEV, "the device is not there" },
		{ ENOENT, "no such object" },
		{ ENOMEM, "out of memory" },
		{ ENOSPC, "no space left in the tier or quota" },
		{ ENOSYS, "not implemented in this version" },
		{ EOVERFLOW, "events were lost; take a snapshot" },
		{ ENOTCONN, "the daemon is away" },
		{ ENOTSUP, "not supported (a durable put: by a context without NVMe)" },
		{ EOWNERDEAD, "the handle belongs to the parent process" },
		{ EPERM, "not permitted to this user" },
		{ EPROTO, "the daemon speaks another version, or broke the protocol" },
		{ ESTALE, "it has changed since it was found" },
		{ ETIMEDOUT, "the deadline has passed" },
		{ E2BIG, "too big" },
		{ EUSERS, "too many clients" },
	};

	if (error < 0)
		error = error < -4095 ? 4096 : -error;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		if (texts[i].error == error)
			return texts[i].text;
	return "an error that this library does not name";
}

const char *tier_version(void)
{
	return TIER_VERSION;
}
