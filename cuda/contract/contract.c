/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the hbm backend relies on in a CUDA driver, asserted against whichever libcuda.so.1 the
 * loader finds: the stand-in in `make test`, the real one where there is a GPU. Prints TAP and the
 * device's name; exit status 77 where there is no driver or device.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libtier/base/cuda_driver.h"

#define CHUNK ((size_t)2 << 20)

struct contract {
	struct cuda_driver cu;
	struct cuda_context *context;
	struct cuda_stream *stream;
	uint64_t handle[2], at; /* two chunks, one behind another; the second can only be read */
	unsigned char *host;    /* [2][CHUNK] */
	uint32_t number, failed;
};

static const struct cuda_location here = { .type = CUDA_AT_DEVICE };

static void expect(struct contract *c, bool good, const char *what)
{
	printf("%sok %u - %s\n", good ? "" : "not ", ++c->number, what);
	c->failed += !good;
}

static void expect_result(struct contract *c, cuda_result got, cuda_result want, const char *what)
{
	expect(c, got == want, what);
	if (got != want)
		printf("# the driver answers %d, expected is %d\n", got, want);
}

static struct cuda_allocation chunk_kind(void)
{
	return (struct cuda_allocation){ .type = CUDA_PINNED, .handle_types = CUDA_HANDLE_FD,
					 .location = here };
}

/* Whoever can go no further says so. */
static void must(struct contract *c, cuda_result got, const char *what)
{
	expect_result(c, got, 0, what);
	if (got) {
		printf("Bail out! %s\n", what);
		exit(1);
	}
}

static void begin(struct contract *c)
{
	char name[128] = "";
	struct cuda_context *current = NULL;
	int32_t count = 0, version = 0, device = -1;
	const char *missing = NULL;
	cuda_result told;
	int rc = cuda_driver_load(&c->cu, &missing);

	if (rc) {
		printf("# no CUDA driver: libcuda.so.1 %s %s\n",
		       missing ? "does not know" : "is not there", missing ? missing : "");
		exit(77);
	}
	/* Before the first line of TAP: who cannot use the device wants to know why. */
	told = c->cu.device_count(&count);
	rc = c->cu.init(0);
	if (rc || c->cu.device_count(&count) || !count) {
		printf("# no device: cuInit answers %d, there are %d\n", rc, count);
		exit(77);
	}
	expect_result(c, told, CUDA_NOT_INITIALIZED, "no call before cuInit");
	c->cu.device_name(name, sizeof(name), 0);
	c->cu.version(&version);
	printf("# device: %s; driver of CUDA %d; batched copies: %s\n", name, version,
	       c->cu.copy_batch ? "yes" : "no");
	must(c, c->cu.context_retain(&c->context, 0), "the device's context");
	must(c, c->cu.context_set(c->context), "... is current");
	must(c, c->cu.context_get(&current), "the current context");
	expect(c, current == c->context, "... is this one");
	expect_result(c, c->cu.context_device(&device), 0, "... of a device");
	expect(c, device == 0, "... the first one");
	must(c, c->cu.stream_create(&c->stream, CUDA_STREAM_NON_BLOCKING, 0), "a stream");
	c->host = mmap(NULL, 2 * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (c->host == MAP_FAILED)
		exit(1);
}

static void check_memory(struct contract *c)
{
	const struct cuda_allocation kind = chunk_kind();
	const struct cuda_access both = { here, CUDA_ACCESS_READ_WRITE };
	const struct cuda_access read_only = { here, CUDA_ACCESS_READ };
	size_t granule = 0;
	uint64_t none;

	must(c, c->cu.granularity(&granule, &kind, CUDA_GRANULARITY_MINIMUM), "granularity");
	expect(c, granule && CHUNK % granule == 0, "... of which 2 MiB is a multiple");
	expect_result(c, c->cu.create(&none, CHUNK + 4096, &kind, 0), CUDA_INVALID_VALUE,
		      "no memory of other sizes");
	must(c, c->cu.create(&c->handle[0], CHUNK, &kind, 0), "a chunk");
	must(c, c->cu.create(&c->handle[1], CHUNK, &kind, 0), "another");
	must(c, c->cu.reserve(&c->at, 2 * CHUNK, CHUNK, 0, 0), "addresses");
	expect(c, c->at % CHUNK == 0, "... aligned as asked");
	must(c, c->cu.map(c->at, CHUNK, 0, c->handle[0], 0), "the first chunk is mapped");
	expect(c, c->cu.map(c->at, CHUNK, 0, c->handle[1], 0) != 0, "no two at one place");
	must(c, c->cu.map(c->at + CHUNK, CHUNK, 0, c->handle[1], 0), "the second chunk is mapped");
	must(c, c->cu.set_access(c->at, 2 * CHUNK, &both, 1), "access to both by one call");
	must(c, c->cu.set_access(c->at + CHUNK, CHUNK, &read_only, 1), "less access to the second");
	expect(c, c->cu.unmap(c->at, CHUNK / 2) != 0, "no part of a mapping is unmapped");
}

/* In a child, which calls nothing of the driver's. */
static void check_processor(struct contract *c)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile char *)(uintptr_t)c->at & 0);
	}
	expect(c, pid > 0 && waitpid(pid, &status, 0) == pid && WIFSIGNALED(status) &&
		  WTERMSIG(status) == SIGSEGV, "a processor cannot touch it");
}

/* In and out again, in one stream: what is asked for later sees what was asked for before. */
static void check_copies(struct contract *c)
{
	struct cuda_copy_attributes how = { .order = CUDA_COPY_IN_STREAM_ORDER };
	uint64_t host = (uintptr_t)c->host, dst[4], src[4];
	size_t bytes[4], first = 0;
	struct cuda_event *event;

	for (size_t i = 0; i < CHUNK; i++)
		c->host[i] = (unsigned char)(i * 2654435761u >> 13);
	must(c, c->cu.event_create(&event, CUDA_EVENT_BLOCKING_WAIT | CUDA_EVENT_NO_TIMING),
	     "an event");
	must(c, c->cu.copy(c->at, host, CHUNK, c->stream), "a copy in");
	must(c, c->cu.copy(host + CHUNK, c->at, CHUNK, c->stream), "a copy out");
	must(c, c->cu.event_record(event, c->stream), "the event behind them");
	must(c, c->cu.event_wait(event), "... comes");
	expect_result(c, c->cu.event_query(event), 0, "... and has come");
	expect(c, !memcmp(c->host, c->host + CHUNK, CHUNK), "the same bytes");
	if (c->cu.copy_batch) {
		memset(c->host + CHUNK, 0, CHUNK);
		for (uint32_t i = 0; i < 4; i++) {
			dst[i] = host + CHUNK + i * (CHUNK / 4);
			src[i] = c->at + (3 - i) * (CHUNK / 4);
			bytes[i] = CHUNK / 4;
		}
		must(c, c->cu.copy_batch(dst, src, bytes, 4, &how, &first, 1, c->stream),
		     "a batch");
		must(c, c->cu.stream_wait(c->stream), "... ends");
		expect(c, !memcmp(c->host + CHUNK, c->host + 3 * (CHUNK / 4), CHUNK / 4) &&
			  !memcmp(c->host + CHUNK + 3 * (CHUNK / 4), c->host, CHUNK / 4),
		       "the batch's bytes");
	}
	c->cu.event_destroy(event);
}

static void check_handles(struct contract *c)
{
	uint64_t again;
	int fd = -1, other, rc = -1;
	char path[40];

	must(c, c->cu.export_fd(&fd, c->handle[0], CUDA_HANDLE_FD, 0), "a handle's descriptor");
	must(c, c->cu.import_fd(&again, (void *)(intptr_t)fd, CUDA_HANDLE_FD), "... is taken");
	expect_result(c, c->cu.release(again), 0, "... and given back");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	other = open(path, O_RDONLY | O_CLOEXEC);
	if (other >= 0)
		rc = c->cu.import_fd(&again, (void *)(intptr_t)other, CUDA_HANDLE_FD);
	expect(c, rc != 0, "one opened anew for reading is not");
	if (other >= 0)
		close(other);
	close(fd);
}

/* As a client has it: for reading, and the handle is given back once it is mapped. */
static void check_imports(struct contract *c)
{
	const struct cuda_access read_only = { here, CUDA_ACCESS_READ };
	uint64_t again, at, host = (uintptr_t)c->host;
	int fd = -1;

	must(c, c->cu.export_fd(&fd, c->handle[0], CUDA_HANDLE_FD, 0), "one for a client");
	must(c, c->cu.import_fd(&again, (void *)(intptr_t)fd, CUDA_HANDLE_FD), "... who takes it");
	close(fd);
	must(c, c->cu.reserve(&at, 2 * CHUNK, CHUNK, 0, 0), "the client's addresses");
	must(c, c->cu.map(at + CHUNK, CHUNK, 0, again, 0), "... where it is mapped");
	expect_result(c, c->cu.release(again), 0, "... without its handle from now on");
	must(c, c->cu.set_access(at + CHUNK, CHUNK, &read_only, 1), "... for reading");
	memset(c->host + CHUNK, 0, CHUNK);
	must(c, c->cu.copy(host + CHUNK, at + CHUNK, CHUNK, c->stream), "... and is read");
	must(c, c->cu.stream_wait(c->stream), "... to the end");
	expect(c, !memcmp(c->host, c->host + CHUNK, CHUNK), "... with the other's bytes");
	expect_result(c, c->cu.unmap(at + CHUNK, CHUNK), 0, "... and let go of");
	expect_result(c, c->cu.unreserve(at, 2 * CHUNK), 0, "the client's addresses back");
}

/* Of host memory that the process may not write. */
static void check_registration(struct contract *c)
{
	int fd = memfd_create("contract", MFD_CLOEXEC);
	uint64_t address = 0;
	int32_t can = 0;
	void *at;

	must(c, c->cu.device_attribute(&can, CUDA_ATTRIBUTE_REGISTER_READ_ONLY, 0),
	     "whether it registers what is read-only");
	if (fd < 0 || ftruncate(fd, CHUNK) || write(fd, c->host, CHUNK) != (ssize_t)CHUNK)
		exit(1);
	at = mmap(NULL, CHUNK, PROT_READ, MAP_SHARED, fd, 0);
	expect(c, c->cu.host_register(at, CHUNK, 0) != 0, "not for writing");
	if (can) {
		must(c, c->cu.host_register(at, CHUNK, CUDA_REGISTER_READ_ONLY), "for reading");
		must(c, c->cu.host_address(&address, at, 0), "... where the device finds it");
		must(c, c->cu.copy(c->at, address, CHUNK, c->stream), "... and reads it");
		must(c, c->cu.stream_wait(c->stream), "... to the end");
		expect_result(c, c->cu.host_unregister(at), 0, "... and lets go of it");
	}
	munmap(at, CHUNK);
	close(fd);
}

/* The handle goes first: what is mapped stays until it is not. */
static void check_end(struct contract *c)
{
	uint64_t host = (uintptr_t)c->host;

	expect_result(c, c->cu.release(c->handle[0]), 0, "a handle is given back");
	memset(c->host + CHUNK, 0, CHUNK);
	must(c, c->cu.copy(host + CHUNK, c->at, CHUNK, c->stream), "its memory can be read");
	must(c, c->cu.stream_wait(c->stream), "... to the end");
	expect(c, !memcmp(c->host, c->host + CHUNK, CHUNK), "... as it was");
	expect_result(c, c->cu.unmap(c->at, CHUNK), 0, "a chunk is unmapped");
	expect_result(c, c->cu.unmap(c->at + CHUNK, CHUNK), 0, "the other");
	expect_result(c, c->cu.release(c->handle[1]), 0, "its handle");
	expect_result(c, c->cu.unreserve(c->at, 2 * CHUNK), 0, "the addresses");
	expect_result(c, c->cu.stream_destroy(c->stream), 0, "the stream");
	expect_result(c, c->cu.context_release(0), 0, "the context");
	munmap(c->host, 2 * CHUNK);
}

int main(void)
{
	struct contract c = { .number = 0 };

	begin(&c);
	check_memory(&c);
	check_processor(&c);
	check_copies(&c);
	check_handles(&c);
	check_imports(&c);
	check_registration(&c);
	check_end(&c);
	printf("1..%u\n", c.number);
	return c.failed != 0;
}
