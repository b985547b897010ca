/*
 * Whole transfers between memory and a file or block device: what read(2) and write(2) may do by
 * halves is done to the end. Blocking. Used by the store's backend before the loop runs, and by
 * tierctl.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TIER_BASE_FILE_H
#define TIER_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

/* Errors: -ENODATA the file ends before all of it was read, else what the kernel says. */
int file_read(int fd, void *buf, size_t bytes, uint64_t offset);

/* Errors: -EIO the file takes nothing and does not say why, else what the kernel says. */
int file_write(int fd, const void *buf, size_t bytes, uint64_t offset);

#endif
