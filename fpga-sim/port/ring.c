/* SPDX-License-Identifier: Apache-2.0 */
/* The RTL's process as a port (port.h), by the daemon's side of the ring (ring.h). */
#include "fpga-sim/port/ring.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "libtier/base/cleanup.h"

struct ring_port {
	struct sim_port port; /* first */
	struct sim_ring *ring;
	uint32_t asked;
};

/* Until it is answered; a server that has ended never will. */
static int ask(struct ring_port *r, struct sim_slot *s)
{
	struct sim_ring *ring = r->ring;
	uint32_t tail;

	s->res = 0;
	r->asked++;
	sim_ring_raise(&ring->head);
	while ((tail = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE)) != r->asked) {
		sim_ring_wait(&ring->tail, tail);
		if (kill(ring->server, 0) && errno == ESRCH)
			return -EIO;
	}
	return s->res;
}

static struct sim_slot *slot_of(struct ring_port *r)
{
	return &r->ring->slot[r->asked % SIM_RING_SLOTS];
}

static int ring_move(struct sim_port *p, bool write, uint64_t address, uint8_t *data,
		     uint32_t bytes)
{
	struct ring_port *r = (struct ring_port *)p;
	struct sim_slot *s = slot_of(r);
	int rc;

	s->op = write ? SIM_WRITE : SIM_READ;
	s->address = address;
	s->bytes = bytes;
	if (write)
		memcpy(s->data, data, bytes);
	rc = ask(r, s);
	if (rc == 0 && !write)
		memcpy(data, s->data, bytes);
	return rc;
}

static int ring_stage(struct sim_port *p, const struct sim_stage *stage)
{
	struct ring_port *r = (struct ring_port *)p;
	struct sim_slot *s = slot_of(r);

	s->op = SIM_STAGE;
	s->address = stage->address;
	s->length = stage->bytes;
	s->cycles = stage->cycles;
	s->class = stage->class;
	return ask(r, s);
}

static int ring_release(struct sim_port *p, uint64_t address)
{
	struct ring_port *r = (struct ring_port *)p;
	struct sim_slot *s = slot_of(r);

	s->op = SIM_RELEASE;
	s->address = address;
	return ask(r, s);
}

static struct sim_flash ring_flash(const struct sim_port *p)
{
	return ((const struct ring_port *)p)->ring->flash;
}

static void ring_close(struct sim_port *p)
{
	struct ring_port *r = (struct ring_port *)p;

	munmap(r->ring, sizeof(*r->ring));
	free(r);
}

/* The file is this user's alone, or somebody else could write what is taken for the tier's. */
static int check_file(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return -errno;
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return -EPERM;
	return (uint64_t)st.st_size == sizeof(struct sim_ring) ? 0 : -EPROTO;
}

int sim_ring_open(struct sim_port **out, const char *path)
{
	int fd CLEANUP_CLOSE = open(path, O_RDWR | O_CLOEXEC), rc;
	struct ring_port *r;

	if (fd < 0)
		return -errno;
	rc = check_file(fd);
	if (rc)
		return rc;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->ring = mmap(NULL, sizeof(*r->ring), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (r->ring == MAP_FAILED) {
		rc = -errno;
		free(r);
		return rc;
	}
	r->port = (struct sim_port){ .name = "RTL in a process of its own", .move = ring_move,
				     .stage = ring_stage, .release = ring_release,
				     .flash = ring_flash, .close = ring_close,
				     .unit_bytes = r->ring->unit_bytes,
				     .capacity = r->ring->capacity };
	r->asked = r->ring->tail;
	if (r->ring->magic != SIM_RING_MAGIC ||
	    r->ring->head != r->asked) {
		ring_close(&r->port);
		return -EPROTO;
	}
	*out = &r->port;
	return 0;
}
