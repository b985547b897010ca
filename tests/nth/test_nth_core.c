/*
 * Failing allocations inside the daemon's parts, in this process: opening a core, making contexts,
 * clients, recovery, operators' questions, the recount, the configuration. Each is tried with its
 * first, second, ... allocation failing, alone and with all that follow, until none fails any more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/host.h"
#include "tests/lib/unit.h"
#include "tests/nth/nth.h"
#include "tierd/config.h"
#include "tierd/obs/obs.h"

#define TRIES_MAX 3000u /* far more than any of these allocates */
#define BLOCKS 6u

/* What was answered when allocations failed. Zero: it went well all the same. */
typedef int attempt(void *arg, uint32_t n, bool sticky);

/* Runs attempts until nothing fails any more; each must answer -ENOMEM, 0 only if `lenient`. */
static void sweep(attempt *call, void *arg, bool lenient)
{
	uint32_t failed = 0;

	for (uint32_t sticky = 0; sticky < 2; sticky++) {
		uint32_t n = 0;
		int rc;

		do {
			rc = call(arg, ++n, sticky);
			if (rc && rc != -ENOMEM)
				fail_msg("allocation %u failed: the answer was %d", n, rc);
			if (!rc && !lenient && nth_disarm())
				fail_msg("allocation %u failed, and nobody noticed", n);
			failed += nth_disarm() > 0;
		} while (nth_disarm() && n < TRIES_MAX);
		assert_true(n < TRIES_MAX);
		assert_int_equal(rc, 0);
	}
	assert_true(failed > 0);
	assert_int_equal(nth_leaks(), 0);
}

/* ---- opening a core ------------------------------------------------------------------------- */

static struct core_config config_of(const struct host *h)
{
	return (struct core_config){
		.boot_token = 1,
		.capacity = { HOST_HBM, HOST_CXL, HOST_NVME },
		.super = h->super,
	};
}

static int try_open(void *arg, uint32_t n, bool sticky)
{
	struct core_config config = config_of(arg);
	struct core *c = NULL;
	int rc;

	nth_arm(n, sticky);
	rc = core_open(&c, &config);
	nth_disarm();
	assert_true((rc == 0) == (c != NULL));
	core_close(c);
	return rc;
}

static void a_core_opens_or_says_out_of_memory(void **state)
{
	sweep(try_open, *state, false);
}

/* ---- contexts ------------------------------------------------------------------------------- */

struct making {
	struct host *h;
	uint32_t kind;
	struct core_context_plan plan;
	struct core_context_memory memory;
};

static int try_create(void *arg, uint32_t n, bool sticky)
{
	struct making *m = arg;
	struct disk_context spec;
	struct core_stats stats;
	uint32_t id;
	int rc;

	host_spec(&spec, m->kind, n);
	memset(m->memory.index, 0, m->plan.index_bytes);
	nth_arm(n, sticky);
	rc = core_context_create(m->h->core, &spec, &m->memory, 0, &id);
	nth_disarm();
	host_audit(m->h);
	core_stats(m->h->core, &stats);
	assert_int_equal(stats.contexts, rc == 0);
	if (rc == 0)
		assert_int_equal(core_context_remove(m->h->core, id, 0, 0), 0);
	host_settle(m->h, 20);
	core_stats(m->h->core, &stats);
	assert_int_equal(stats.contexts, 0);
	return rc;
}

static void a_context_is_made_or_leaves_nothing_behind(void **state)
{
	struct making m = { .h = *state };

	host_boot(m.h, NULL);
	for (m.kind = 0; m.kind < 2; m.kind++) {
		struct disk_context spec;
		char why[128];

		host_spec(&spec, m.kind, 0);
		assert_int_equal(core_context_plan(m.h->core, &spec, &m.plan, why, sizeof(why)), 0);
		m.memory.index = malloc(m.plan.index_bytes);
		assert_non_null(m.memory.index);
		sweep(try_create, &m, false);
		free(m.memory.index);
	}
	host_halt(m.h);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void on_end(void *arg, uint32_t client, int32_t error, const char *why)
{
	assert_int_equal(client, 0);
	assert_non_null(why);
	*(int *)arg = error;
}

static int try_client(void *arg, uint32_t n, bool sticky)
{
	struct host *h = arg;
	int ended = 0;

	h->ears = (struct host_ears){ .end = on_end, .arg = &ended };
	nth_arm(n, sticky);
	host_client_open(h, 0);
	nth_disarm();
	host_client_gone(h, 0);
	host_client_dead(h, 0);
	host_audit(h);
	h->ears = (struct host_ears){ .end = NULL };
	return ended;
}

static void a_client_is_served_or_sent_away(void **state)
{
	host_boot(*state, NULL);
	sweep(try_client, *state, false);
	host_halt(*state);
}

/* ---- recovery ------------------------------------------------------------------------------- */

static uint64_t last_value;

static void on_complete(void *arg, uint32_t client, const struct abi_cqe *cqe)
{
	(void)arg;
	(void)client;
	assert_int_equal(cqe->res, 0);
	last_value = cqe->value;
}

static void ask(struct host *h, const struct abi_sqe *sqe)
{
	assert_true(host_request(h, 0, sqe));
	host_settle(h, 20);
}

static void keys(uint8_t *at)
{
	memset(at, 0, BLOCKS * ABI_KEY_BYTES);
	for (uint32_t i = 0; i < BLOCKS; i++)
		at[i * ABI_KEY_BYTES] = (uint8_t)(i + 1);
}

/* A context with a durable run of blocks, a pin, and a tombstone, on the host's device. */
static void populate(struct host *h)
{
	uint8_t *staging = h->client[0].staging;
	struct abi_put_args args = { .count = BLOCKS };
	struct abi_sqe sqe = { .op = ABI_OP_PUT_RESERVE, .flags = ABI_SQE_DURABLE,
			       .arg_bytes = sizeof(args) + BLOCKS * ABI_KEY_BYTES,
			       .count = BLOCKS };
	struct disk_context spec;

	host_spec(&spec, HOST_KIND_STORE, 0);
	assert_int_equal(host_context_make(h, 0, &spec), 0);
	h->ears = (struct host_ears){ .complete = on_complete };
	host_client_open(h, 0);
	host_client_attach(h, 0);
	memcpy(staging, &args, sizeof(args));
	keys(staging + sizeof(args));
	sqe.context_id = h->context[0].id;
	ask(h, &sqe);
	ask(h, &(struct abi_sqe){ .op = ABI_OP_PUT_COMMIT, .handle = last_value });
	keys(staging);
	ask(h, &(struct abi_sqe){ .op = ABI_OP_DELETE, .context_id = h->context[0].id, .count = 2,
				  .flags = ABI_SQE_KEYS, .arg_bytes = 2 * ABI_KEY_BYTES });
	ask(h, &(struct abi_sqe){ .op = ABI_OP_PIN, .context_id = h->context[0].id, .count = 1,
				  .arg_offset = 3 * ABI_KEY_BYTES, .flags = ABI_SQE_KEYS,
				  .arg_bytes = ABI_KEY_BYTES, .tier = ABI_TIER_CXL });
	h->ears = (struct host_ears){ .complete = NULL };
}

struct recovering {
	struct host *h;
	const struct disk_catalog *catalog;
	const struct disk_context *spec;
};

static int read_back(struct host *h, struct core_recovery *out)
{
	const struct disk_super *p = &h->super;
	int rc = 0;

	for (uint32_t i = 0; i < p->segment_count && rc != -ENOMEM; i++)
		rc = core_recover_segment(h->core, i,
					  h->disk + p->segment_offset + i * p->segment_bytes,
					  p->summary_bytes);
	return rc == -ENOMEM ? rc : core_recover_finish(h->core, out);
}

static int try_recovery(void *arg, uint32_t n, bool sticky)
{
	struct recovering *r = arg;
	struct core_recovery out = { .blocks = 0 };
	int rc;

	host_boot(r->h, r->catalog);
	assert_int_equal(host_context_make(r->h, 0, r->spec), 0);
	nth_arm(n, sticky);
	rc = read_back(r->h, &out);
	nth_disarm();
	if (rc == 0) {
		host_audit(r->h);
		assert_int_equal(out.blocks, BLOCKS - 2);
	}
	host_halt(r->h);
	return rc;
}

static void recovery_is_whole_or_says_out_of_memory(void **state)
{
	struct recovering r = { .h = *state };
	const struct disk_super *p = &r.h->super;
	const struct disk_catalog *head;

	memset(r.h->disk, 0, HOST_NVME);
	host_boot(r.h, NULL);
	populate(r.h);
	host_halt(r.h);
	for (uint32_t i = 0; i < 2; i++) {
		const struct disk_context *list;

		if (disk_catalog_open(r.h->disk + p->catalog_offset + i * p->catalog_bytes,
				      p->catalog_bytes, p->store_id, &head, &list) == 0) {
			r.catalog = head;
			r.spec = list;
		}
	}
	assert_non_null(r.catalog);
	sweep(try_recovery, &r, false);
}

/* ---- operators ------------------------------------------------------------------------------ */

struct asking {
	struct obs obs;
	struct hist hist;
	struct obs_connection connection;
	const char *verb;
};

static int try_question(void *arg, uint32_t n, bool sticky)
{
	static const char args[] =
		"{\"context\":\"context-0\",\"tier\":\"cxl\",\"bytes\":4096,\"key\":\""
		"0400000000000000000000000000000000000000000000000000000000000000\"}";
	struct asking *a = arg;
	struct obs_question q = { .verb = a->verb, .args = args, .operator_ = true, .now_ns = 9,
				  .connection = &a->connection, .connections = 1 };
	struct obs_deed deed = { .kind = OBS_DEED_NONE };
	char why[OBS_WHY_BYTES] = "", *json = NULL;
	int rc;

	nth_arm(n, sticky);
	rc = obs_answer(&a->obs, &q, &json, &deed, why);
	if (rc == -EINPROGRESS) {
		json = obs_done(deed.kind, 1);
		rc = json ? 0 : -ENOMEM;
		snprintf(why, sizeof(why), "no text for the deed");
	}
	nth_disarm();
	assert_true((rc == 0) == (json != NULL));
	if (rc)
		assert_true(why[0]);
	free(json);
	/* Arguments that could not be read for want of memory look like wrong ones. */
	return rc == -EINVAL || rc == -ENOENT ? -ENOMEM : rc;
}

static void questions_are_answered_or_refused(void **state)
{
	static const char *const verbs[] = { "status", "stat", "contexts", "context", "locate",
					     "check", "pins", "requests", "clients", "evict",
					     "drain" };
	struct asking a = { .connection = { .id = 1, .name = "engine", .open = true } };
	struct host *h = *state;

	host_boot(h, NULL);
	populate(h);
	a.obs = (struct obs){ .core = h->core, .version = "nth", .socket = "/s", .store = "/t",
			      .super = h->super };
	obs_fact(&a.obs, "kernel", "%s", "some");
	obs_latency(&a.obs, "request", "demand", &a.hist);
	for (size_t i = 0; i < COUNT(verbs); i++) {
		a.verb = verbs[i];
		sweep(try_question, &a, true);
	}
	host_empty(h);
	host_halt(h);
}

/* ---- the recount ---------------------------------------------------------------------------- */

static int try_audit(void *arg, uint32_t n, bool sticky)
{
	const struct host *h = arg;
	uint64_t wrong;

	nth_arm(n, sticky);
	wrong = core_audit(h->core, NULL, NULL);
	nth_disarm();
	return wrong ? -ENOMEM : 0;
}

static void a_recount_is_whole_or_says_that_it_is_not(void **state)
{
	struct host *h = *state;

	memset(h->disk, 0, HOST_NVME);
	host_boot(h, NULL);
	populate(h);
	sweep(try_audit, h, false);
	host_empty(h);
	host_halt(h);
}

/* ---- configuration -------------------------------------------------------------------------- */

static int try_config(void *arg, uint32_t n, bool sticky)
{
	char why[CONFIG_WHY_BYTES] = "";
	struct config k;
	int rc;

	config_defaults(&k, true, false);
	nth_arm(n, sticky);
	rc = config_load(&k, arg, why, sizeof(why));
	nth_disarm();
	if (rc)
		assert_true(why[0]);
	else if (k.clients_max != 77 || k.workers != 3)
		fail_msg("allocation %u failed: the file was taken for an empty one", n);
	return rc == -EINVAL ? -ENOMEM : rc; /* "cannot be read" is well said, too */
}

static void a_file_is_read_whole_or_refused(void **state)
{
	static const char text[] = "workers = 3\n\n# more\n[clients]\nmax = 77\n";
	int fd = memfd_create("config", 0);
	char path[32];

	(void)state;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(write(fd, text, sizeof(text) - 1), sizeof(text) - 1);
	sweep(try_config, path, true); /* stdio can do without a buffer */
	close(fd);
}

static int setup(void **state)
{
	static struct host host;

	host_init(&host);
	*state = &host;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_core_opens_or_says_out_of_memory),
		cmocka_unit_test(a_context_is_made_or_leaves_nothing_behind),
		cmocka_unit_test(a_client_is_served_or_sent_away),
		cmocka_unit_test(recovery_is_whole_or_says_out_of_memory),
		cmocka_unit_test(questions_are_answered_or_refused),
		cmocka_unit_test(a_recount_is_whole_or_says_that_it_is_not),
		cmocka_unit_test(a_file_is_read_whole_or_refused),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
