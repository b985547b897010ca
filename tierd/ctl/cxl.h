/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this host's kernel says of CXL regions: for who looks at a tier whose device misbehaves.
 * Read by tierctl and not by the daemon: sysfs waits for a region that is being taken down.
 */
#ifndef TIERD_CTL_CXL_H
#define TIERD_CTL_CXL_H

#include <stdio.h>

/* A line a region: size, committed or not, each target's decoder. root: "" but in tests. */
void ctl_cxl_regions(const char *root, FILE *to);

#endif
