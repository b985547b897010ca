/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of start-up; see startup.h. Order matters in reverse, too: workers end before the
 * memory that their jobs touch, the device after those who write to it, the ring last.
 */
#include "tierd/startup.h"

#include <errno.h>
#include <inttypes.h>
#include <libgen.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "libtier/base/time.h"
#include "tierd/bounce.h"
#include "tierd/fault.h"
#include "tierd/recover.h"
#include "tierd/settings.h"

#define FIXED_REST (24ull << 20) /* code, stacks, buffers of the ring: beside what was allocated */
#define LOG_LINES_PER_S 200u /* clients can cause lines: not more than this */

/* ---- config, log --------------------------------------------------------------------------- */

/* The file that is read when none was named; it need not be there. */
static const char *default_file(char *path, size_t bytes)
{
	const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

	if (config_is_service())
		snprintf(path, bytes, "/etc/tier/tierd.conf");
	else if (config && config[0])
		snprintf(path, bytes, "%s/tier/tierd.conf", config);
	else if (home)
		snprintf(path, bytes, "%s/.config/tier/tierd.conf", home);
	else
		return NULL;
	return access(path, F_OK) == 0 ? path : NULL;
}

/* Paths of options may be relative, as everywhere on a command line; the file's may not. */
static const char *absolute(const char *path, char *buf, size_t bytes)
{
	char here[CONFIG_PATH_BYTES];

	if (path[0] == '/' || !path[0] || !getcwd(here, sizeof(here)))
		return path;
	return (size_t)snprintf(buf, bytes, "%s/%s", here, path) < bytes ? buf : path;
}

/* --set of a path is as good as the option of that name: *key, and what it is set to. */
static const char *split_path(const char *assignment, const char **key)
{
	static const char *const paths[] = { "socket", "store.path", "object.path" };

	for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
		size_t len = strlen(paths[i]);

		if (strncmp(assignment, paths[i], len) || assignment[len] != '=')
			continue;
		*key = paths[i];
		return assignment + len + 1;
	}
	return assignment;
}

static int apply_options(const struct options *o, struct config *config, char *why,
			 size_t why_bytes)
{
	int rc = 0;

	for (uint32_t i = 0; i < o->sets && rc == 0; i++) {
		const char *key = o->set[i].key, *value = o->set[i].value;
		char path[CONFIG_PATH_BYTES];

		if (!key)
			value = split_path(value, &key);
		if (key)
			rc = config_assign(config, key, absolute(value, path, sizeof(path)),
					   why, why_bytes);
		else
			rc = config_set(config, value, why, why_bytes);
	}
	return rc;
}

static int read_config(const struct options *o, struct config *config, char *why,
		       size_t why_bytes)
{
	char path[CONFIG_PATH_BYTES];
	const char *file = o->config ? o->config : default_file(path, sizeof(path));
	int rc = 0;

	config_defaults(config, config_is_service(), !o->foreground);
	if (file)
		rc = config_load(config, file, why, why_bytes);
	if (rc == 0)
		rc = apply_options(o, config, why, why_bytes);
	return rc ? rc : config_check(config, why, why_bytes);
}

static int begin_config(struct shell *s)
{
	char why[CONFIG_WHY_BYTES] = "";
	int rc = read_config(&s->options, &s->config, why, sizeof(why));

	s->said = s->config;
	if (rc)
		fprintf(stderr, "tierd: %s\n", why);
	return rc;
}

static void tell_key(void *arg, const char *name, bool taken)
{
	struct log *log = arg;

	if (taken)
		log_event(log, LOG_LEVEL_WARN, "reload: another value is in force", name, NULL, "");
	else
		log_warn(log, "reload: this key cannot change while the daemon runs", name,
			 "it has its old value until a restart: tierctl upgrade", "");
}

void startup_reload(struct shell *s)
{
	struct config *anew = calloc(1, sizeof(*anew));
	char why[CONFIG_WHY_BYTES] = "out of memory";
	int rc = anew ? read_config(&s->options, anew, why, sizeof(why)) : -ENOMEM;

	if (rc) {
		log_error(&s->log, "reload: nothing was changed", NULL, why, "errno=%d", -rc);
		free(anew);
		return;
	}
	config_reload(&s->said, anew, tell_key, &s->log);
	free(anew);
	settings_of_core(&s->said, &s->core_config);
	core_reload(s->core, &s->core_config);
	s->log.level = (enum log_level)s->said.log_level;
	s->obs.limits.user_connections = s->core_config.user_connections;
	log_info(&s->log, "configuration read anew", s->said.file, "");
}

/*
 * Tables of a context, of which most pages are never touched, have mappings of their own. By itself
 * malloc keeps what large ones had, once one was freed.
 */
static void keep_tables_apart(void)
{
	mallopt(M_MMAP_THRESHOLD, CORE_TABLE_BYTES);
}

static int begin_log(struct shell *s)
{
	keep_tables_apart();
	s->log = (struct log){ .level = (enum log_level)s->config.log_level,
			       .lines_per_s_max = LOG_LINES_PER_S };
	s->obs.version = TIER_VERSION;
	s->obs.uid = geteuid();
	s->obs.started_ns = time_now_ns();
	s->obs.socket = s->config.socket;
	if (getrandom(&s->obs.boot_token, sizeof(s->obs.boot_token), 0) !=
	    (ssize_t)sizeof(s->obs.boot_token))
		return -EIO;
	s->core_config.boot_token = s->obs.boot_token;
	if (getrandom(&s->core_config.secret, sizeof(s->core_config.secret), 0) !=
	    (ssize_t)sizeof(s->core_config.secret))
		return -EIO;
	return 0;
}

static int cannot_listen(struct shell *s, int rc, const char *why)
{
	if (rc)
		log_error(&s->log, "cannot listen", s->config.socket, why,
			  "error=\"%s\" errno=%d", strerror(-rc), -rc);
	return rc;
}

/* Whose socket is taken has no use for a store, and preallocates none. */
static int begin_socket(struct shell *s)
{
	char why[FRONT_WHY_BYTES] = "";
	int rc = s->handover.socket ? 0 : front_look(s->config.socket, why);

	return cannot_listen(s, rc, why);
}

static int begin_kernel(struct shell *s)
{
	return kernel_probe(&s->obs, &s->log);
}

/* ---- backends ------------------------------------------------------------------------------ */

static void tell_tier(struct shell *s, uint32_t tier, const struct backend_info *info)
{
	struct obs_tier *o = &s->obs.tier[tier];

	o->present = true;
	o->emulated = info->emulated;
	o->device = info->device;
	memcpy(o->backend, info->name, sizeof(o->backend));
	memcpy(o->detail, info->detail, sizeof(o->detail));
}

static uint64_t host_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int check_fit(struct shell *s, const uint64_t bytes[ABI_MEM_TIERS],
		     const struct mem_limit *limit)
{
	struct settings_unfit unfit;
	int rc = settings_fit(&s->config, bytes, limit, &unfit);

	if (rc)
		log_error(&s->log, "memory tiers are larger than the memory there is", unfit.where,
			  unfit.advice, "hbm=%" PRIu64 " cxl=%" PRIu64 " memory=%" PRIu64,
			  bytes[ABI_TIER_HBM], bytes[ABI_TIER_CXL], limit->most);
	return rc;
}

/* A backend with memory of its own, whatever the rest of the host has. */
static int check_backend(struct shell *s, uint32_t tier, uint64_t bytes,
			 const struct backend_info *info)
{
	uint64_t alone[ABI_MEM_TIERS] = { 0 };
	struct mem_limit limit = { .most = info->capacity_most };

	if (!limit.most)
		return 0;
	snprintf(limit.says, sizeof(limit.says), "backend %s", info->name);
	alone[tier] = bytes;
	return check_fit(s, alone, &limit);
}

static int open_backend(struct shell *s, uint32_t tier, const struct mem_ops *ops,
			const struct backend_info *info, uint64_t bytes)
{
	int rc = ops->open(&ops, info, bytes);

	if (rc)
		log_error(&s->log, "the memory of a tier is not to be had", obs_tier_name[tier],
			  "give the tier a smaller size, end what else uses the device, or name "
			  "another backend", "backend=%s bytes=%" PRIu64 " error=\"%s\" errno=%d",
			  ops->name, bytes, strerror(-rc), -rc);
	else
		s->mem[tier] = ops;
	return rc;
}

/* CXL that no processor touches: clients read in HBM, and its copies do not reach a GPU's. */
static int begin_simulated(struct shell *s, const char *backend)
{
	const struct obs_tier *hbm = &s->obs.tier[ABI_TIER_HBM];

	if (!hbm->present || hbm->device) {
		log_error(&s->log, "behind a simulated CXL device HBM has to be host memory",
			  "cxl.backend", "write hbm.backend = host and an hbm.size that is not 0",
			  "backend=%s", backend);
		return -ENOTSUP;
	}
	return bounces_open(&s->dispatch.bounces);
}

/* why: of NUMA nodes that the configuration names; NULL = it names none. */
static int no_memory(struct shell *s, uint32_t tier, const char *backend, const char *why)
{
	char text[CONFIG_PATH_BYTES + 64];

	if (why) {
		config_where(&s->config, "cxl.node", text, sizeof(text));
		log_error(&s->log, "a NUMA node cannot be used", text,
			  "name nodes that have memory: numactl --hardware lists them",
			  "why=\"%s\"", why);
	} else {
		mem_backend_names(tier, text, sizeof(text));
		log_error(&s->log, "no such memory here", obs_tier_name[tier],
			  "name another backend in the configuration, or auto",
			  "backend=%s known=\"%s\"", backend, text);
	}
	return -ENODEV;
}

static int begin_memory_tier(struct shell *s, uint32_t tier, const struct units_size *size,
			     const char *backend, uint64_t *of_host)
{
	struct backend_info info;
	uint64_t nodes = tier == ABI_TIER_CXL ? s->config.cxl_node : 0;
	const struct mem_ops *ops = mem_backend(tier, backend, nodes, &info);
	uint64_t bytes;
	int rc;

	if (!ops && size->kind != UNITS_AUTO && size->value == 0)
		return 0;
	if (!ops)
		return no_memory(s, tier, backend, nodes ? info.detail : NULL);
	bytes = units_resolve(size, info.device ? info.capacity_most : host_memory(),
			      info.capacity_auto) & ~(uint64_t)(ABI_HUGE - 1);
	if (bytes == 0)
		return 0;
	rc = check_backend(s, tier, bytes, &info);
	if (rc == 0)
		rc = open_backend(s, tier, ops, &info, bytes);
	if (rc)
		return rc;
	s->core_config.capacity[tier] = bytes;
	if (tier == ABI_TIER_CXL) {
		s->object_cxl = objects_share(s, bytes);
		if (s->object_cxl > bytes - bytes / 8) {
			log_error(&s->log, "objects would get all of the CXL tier", "object.cxl",
				  "write less than 7/8 of cxl.size", "");
			return -EINVAL;
		}
		s->core_config.capacity[tier] -= s->object_cxl;
		s->core_config.capacity[tier] &= ~(uint64_t)(ABI_HUGE - 1);
	}
	if (tier == ABI_TIER_CXL && info.device)
		rc = begin_simulated(s, info.name);
	if (rc)
		return rc;
	*of_host = info.own_memory || info.device ? 0 : bytes;
	if (tier == ABI_TIER_HBM)
		s->core_config.direct = info.direct && s->config.hbm_direct;
	else
		s->core_config.place_bytes = info.grants ? ABI_HUGE : 0;
	tell_tier(s, tier, &info);
	log_info(&s->log, "tier", obs_tier_name[tier], "backend=%s emulated=%d bytes=%" PRIu64,
		 info.name, info.emulated, bytes);
	return 0;
}

/* What is not a device's is host memory, which counts against the group that the daemon is in. */
static int check_memory(struct shell *s, const uint64_t of_host[ABI_MEM_TIERS])
{
	struct mem_limit limit;

	mem_limit_read(&limit, host_memory(), MEM_LIMIT_GROUP, MEM_LIMIT_ROOT);
	s->core_config.table_bytes = settings_tables(&s->config, of_host, &limit);
	s->core_config.contexts_most = kernel_contexts(s->config.clients_max);
	return check_fit(s, of_host, &limit);
}

static void end_backends(struct shell *s)
{
	for (uint32_t t = 0; t < ABI_MEM_TIERS; t++)
		if (s->mem[t])
			s->mem[t]->close(s->mem[t]);
	bounces_close(s->dispatch.bounces);
}

static int begin_backends(struct shell *s)
{
	uint64_t of_host[ABI_MEM_TIERS] = { 0 };
	int rc = begin_memory_tier(s, ABI_TIER_HBM, &s->config.hbm_size, s->config.hbm_backend,
				   &of_host[ABI_TIER_HBM]);

	if (rc == 0)
		rc = begin_memory_tier(s, ABI_TIER_CXL, &s->config.cxl_size,
				       s->config.cxl_backend, &of_host[ABI_TIER_CXL]);
	if (rc == 0)
		rc = check_memory(s, of_host);
	if (rc == 0 && s->core_config.capacity[ABI_TIER_CXL] == 0) {
		log_error(&s->log, "the CXL tier has no memory", "cxl.size",
			  "give it 2 MiB or more", "");
		rc = -ENOMEM;
	}
	if (rc)
		end_backends(s);
	return rc;
}

static int begin_ring(struct shell *s)
{
	return loop_open(s);
}

static void end_ring(struct shell *s)
{
	loop_close(s);
}

/* ---- store --------------------------------------------------------------------------------- */

/* mkdir -p of the folder of a path; what is wrong with it shows when the path is used. */
static void make_folder(const char *path, mode_t mode)
{
	char folder[CONFIG_PATH_BYTES];

	snprintf(folder, sizeof(folder), "%s", path);
	dirname(folder);
	for (char *at = folder + 1; *at; at++) {
		if (*at != '/')
			continue;
		*at = '\0';
		mkdir(folder, 0755);
		*at = '/';
	}
	mkdir(folder, mode);
}

static uint64_t file_system_bytes(const char *path)
{
	char folder[CONFIG_PATH_BYTES];
	struct statvfs fs;

	snprintf(folder, sizeof(folder), "%s", path);
	if (statvfs(dirname(folder), &fs))
		return 0;
	return (uint64_t)fs.f_blocks * fs.f_frsize;
}

/* Whether, and on what ground. A file's room is given back only on the operator's word. */
static void choose_discards(struct shell *s, uint32_t drive)
{
	static const char *const ground[] = {
		[DRIVE_DISCARD_NONE] = "its device takes none",
		[DRIVE_DISCARD_DEVICE] = "its device takes them",
		[DRIVE_DISCARD_FILE] = "it is a file, where they leave holes",
	};
	enum drive_discard can = s->drive_ops->discards(s->drive[drive].device);
	uint32_t want = s->config.nvme_discard;
	bool on = can == DRIVE_DISCARD_DEVICE || (can == DRIVE_DISCARD_FILE && want == CONFIG_ON);

	on = on && want != CONFIG_OFF;
	s->core_config.discard |= on;
	s->core_config.discard_none |= on ? 0 : 1u << drive;
	log_info(&s->log, "discards of dead segments", s->drive[drive].path, "on=%d why=\"%s\"",
		 on, want == CONFIG_OFF ? "nvme.discard says so" : ground[can]);
}

/* From here on store_path is the first. */
static void name_drives(struct shell *s)
{
	const char *path[CORE_DRIVES_MAX];
	uint32_t n = config_paths(s->config.store_path, path, CORE_DRIVES_MAX);

	for (uint32_t i = 0; i < n; i++)
		s->drive[i].path = path[i];
}

static int begin_store(struct shell *s)
{
	const struct units_size *size = &s->config.nvme_size;
	struct drive_options options = { .path = s->config.store_path,
					 .buffered = s->config.nvme_buffered };
	struct backend_info info;
	int rc;

	if (size->kind != UNITS_AUTO && size->value == 0) {
		log_info(&s->log, "no store: memory only", NULL, "");
		return 0;
	}
	name_drives(s);
	make_folder(s->config.store_path, 0700);
	s->drive_ops = drive_backend(s->config.nvme_backend);
	if (!s->drive_ops) {
		log_error(&s->log, "there is no such backend of the NVMe tier",
			  s->config.nvme_backend, "nvme.backend: auto, file or passthrough", "");
		return -ENODEV;
	}
	rc = s->drive_ops->probe(&options, &info);
	if (rc) {
		log_error(&s->log, "the store cannot be used", s->config.store_path,
			  "name a file in a folder that may be written, or a block device",
			  "error=\"%s\" errno=%d", strerror(-rc), -rc);
		return rc;
	}
	rc = recover_store(s, units_resolve(size, file_system_bytes(s->config.store_path),
					    info.capacity_auto));
	if (rc)
		return rc;
	tell_tier(s, ABI_TIER_NVME, &info);
	for (uint32_t i = 0; i < s->drives; i++)
		choose_discards(s, i);
	return 0;
}

static void end_store(struct shell *s)
{
	if (s->drive_ops)
		recover_store_close(s);
}

/* ---- core ---------------------------------------------------------------------------------- */

static int begin_memory(struct shell *s)
{
	return memory_open(&s->memory, s->mem);
}

static void end_memory(struct shell *s)
{
	memory_close(s->memory);
}

/* What was allocated so far, touched or not. */
static uint64_t allocated(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

static int begin_cold(struct shell *s)
{
	const char *kind = s->config.meta_memory;
	int rc;

	if (!strcmp(kind, "dram"))
		return 0;
	rc = cold_open(&s->cold, kind);
	if (rc) {
		log_error(&s->log, "there is no such memory for the daemon's tables", "meta.memory",
			  rc == -ENOENT ? "write dram, capacity or dax-kmem" :
			  rc == -ENOSYS ? "install libmemkind0, or write dram" :
					  "this host has none of that kind; write dram",
			  "kind=%s error=\"%s\"", kind, strerror(-rc));
		return rc;
	}
	s->core_config.cold = cold_memory(s->cold);
	s->obs.cold_kind = kind;
	s->obs.cold_bytes = cold_bytes(s->cold);
	return 0;
}

static int begin_core(struct shell *s)
{
	struct core_config *c = &s->core_config;
	int rc;

	if (c->next_uid == 0)
		c->next_uid = 1;
	settings_of_core(&s->config, c);
	rc = begin_cold(s);
	if (rc)
		return rc;
	rc = core_open(&s->core, c);
	if (rc) {
		log_error(&s->log, "no memory for the core's tables", "",
			  "raise the limit of the process: ulimit -v", "error=\"%s\" errno=%d",
			  strerror(-rc), -rc);
		return rc;
	}
	s->obs.core = s->core;
	s->obs.recount = recount_host;
	s->obs.shell = s;
	s->obs.trace = &s->trace;
	s->obs.limits = settings_shown(&s->config, c);
	s->loop.turn = (struct turn){ .core = s->core, .now_ns = time_now_ns() };
	turn_clock(&s->loop.turn, time_wall_ms());
	s->obs.fixed_bytes = allocated() + FIXED_REST;
	return 0;
}

static void end_core(struct shell *s)
{
	core_close(s->core);
	s->core = NULL;
	s->obs.cold_kind = NULL;
	cold_close(s->cold);
	s->cold = NULL;
	trace_drop(&s->trace);
	free(s->obs.aside);
	s->obs.aside = NULL;
	s->obs.asides = 0;
}

static int begin_contexts(struct shell *s)
{
	return recover_contexts(s);
}

static int begin_segments(struct shell *s)
{
	return recover_segments(s);
}

/* ---- front, workers ------------------------------------------------------------------------ */

static int begin_front(struct shell *s)
{
	struct front_config config = {
		.socket = s->config.socket,
		.listening = s->handover.socket,
		.socket_mode = s->config.socket_mode,
		.clients_max = s->config.clients_max,
		.staging_max = s->config.staging_max,
		.user_contexts = s->config.user_contexts,
		.places = s->core_config.place_bytes,
		.boot_token = s->obs.boot_token,
		.core = s->core,
		.objects = s->objects,
		.obs = &s->obs,
		.log = &s->log,
		.ops = &shell_front_ops,
		.shell = s,
	};
	uint64_t before = allocated();
	int rc = front_open(&s->front, &config);

	if (rc == 0)
		front_describe(s->front, &s->obs);
	s->obs.fixed_bytes += allocated() - before;
	return rc;
}

static void end_front(struct shell *s)
{
	front_close(s->front);
}

static int begin_signals(struct shell *s)
{
	return loop_signals(s);
}

static int begin_workers(struct shell *s)
{
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint32_t count = s->config.workers;
	int rc;

	if (count == 0)
		count = processors > 3 ? (uint32_t)processors / 2 : 1;
	rc = fault_open();
	if (rc)
		return rc;
	rc = worker_open(&s->workers, count, s->loop.fd[LOOP_WORKERS]);
	s->obs.workers = count;
	dispatch_describe(s);
	return rc;
}

static void end_workers(struct shell *s)
{
	worker_close(s->workers);
}

static int begin_listen(struct shell *s)
{
	char why[FRONT_WHY_BYTES] = "";
	int rc;

	make_folder(s->config.socket, 0755);
	rc = front_listen(s->front, why);
	return cannot_listen(s, rc, why);
}

static int begin_ready(struct shell *s)
{
	char status[192];

	s->obs.ready_ns = time_now_ns() - s->obs.started_ns;
	log_info(&s->log, "ready", s->config.socket, "ms=%" PRIu64 " workers=%u version=%s",
		 s->obs.ready_ns / NS_PER_MS, s->obs.workers, TIER_VERSION);
	snprintf(status, sizeof(status), "ready on %s", s->config.socket);
	notify_ready(status);
	if (s->options.foreground) {
		printf("tierd: ready on %s\n", s->config.socket);
		fflush(stdout);
	}
	return 0;
}

/* ---- the table ----------------------------------------------------------------------------- */

struct step {
	const char *name;
	int (*begin)(struct shell *s);
	void (*undo)(struct shell *s); /* NULL: nothing to undo */
};

static const struct step steps[] = {
	{ "config", begin_config, NULL },
	{ "log", begin_log, NULL },
	{ "handover", handover_begin, NULL },
	{ "socket", begin_socket, NULL },
	{ "kernel", begin_kernel, NULL },
	{ "backends", begin_backends, end_backends },
	{ "ring", begin_ring, end_ring },
	{ "store", begin_store, end_store },
	{ "memory", begin_memory, end_memory },
	{ "core", begin_core, end_core },
	{ "contexts", begin_contexts, NULL },
	{ "former contexts", handover_contexts, NULL },
	{ "segments", begin_segments, NULL },
	{ "former blocks", handover_take, NULL },
	{ "objects", objects_begin, objects_end },
	{ "front", begin_front, end_front },
	{ "former clients", handover_clients, NULL },
	{ "signals", begin_signals, NULL },
	{ "workers", begin_workers, end_workers },
	{ "metrics", exporter_open, exporter_close },
	{ "listen", begin_listen, NULL },
	{ "ready", begin_ready, NULL },
};

#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void undo(struct shell *s, size_t done)
{
	while (done-- > 0)
		if (steps[done].undo)
			steps[done].undo(s);
}

int startup_begin(struct shell *s)
{
	for (size_t i = 0; i < STEPS; i++) {
		uint64_t begun = time_now_ns();
		int rc = steps[i].begin(s);

		if (rc == 0) {
			log_debug(&s->log, "step done", steps[i].name, "us=%" PRIu64,
				  (time_now_ns() - begun) / NS_PER_US);
			continue;
		}
		if (i > 0)
			log_error(&s->log, "start failed", steps[i].name,
				  "the lines above say why", "error=\"%s\" errno=%d",
				  strerror(-rc), -rc);
		undo(s, i);
		return rc;
	}
	return 0;
}

void startup_end(struct shell *s)
{
	undo(s, STEPS);
}
