/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The folder of objects looked at without its daemon, for `tierctl check STORE`: it changes
 * nothing, for what can be mended the daemon mends at its start.
 */
#ifndef TIERD_CTL_CHECK_OBJECTS_H
#define TIERD_CTL_CHECK_OBJECTS_H

#include "libtier/abi/disk.h"

struct check_objects {
	const char *path; /* of the folder; that it is not there is no fault */
	uint64_t store_id;
	const struct disk_context *context; /* of the store's catalog */
	uint32_t contexts;
	bool data; /* also read all bytes, and compare their sums */
	void (*tell)(void *arg, const char *line);
	void *arg;
	/* out */
	uint64_t objects, read, nobodys, faults;
};

/* Each finding is told in a line. Errors: negative errno, it cannot be looked at; that is told. */
int check_objects(struct check_objects *c);

#endif
