/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device with its clock as the drive of a modelled host (bench/model): the service's reads and
 * writes of its store go through the device. Requests are whole lines here: one look-up, and the
 * cycles of all their flits.
 */
#ifndef TIER_FPGA_PORT_H
#define TIER_FPGA_PORT_H

#include "bench/model/model.h"
#include "points.h"

struct port;

struct port_traffic {
	uint64_t count, bytes;
	uint64_t busy, waited; /* cycles: with any under way; of all, from submission to the end */
};

/*
 * windows: reads are staged by windows, neighbours in the order of submission by one; else they go
 * through the cache as writes do. Errors: -ENOMEM, clock_open's.
 */
int port_open(struct port **out, const struct point *p, const struct point_rates *r,
	      uint32_t sets_log);
void port_close(struct port *p);

struct model_drive port_drive(struct port *p);
const struct port_traffic *port_traffic(const struct port *p, bool write);
struct device *port_device(struct port *p);

#endif
