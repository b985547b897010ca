/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the operator decides: one table of keys, from which the file, `--set`, `--help` and the
 * manual are fed. A value that cannot be used is answered with where, what, and what to do; it
 * never becomes a default silently.
 */
#ifndef TIERD_CONFIG_H
#define TIERD_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "libtier/abi/common.h"
#include "libtier/base/log.h"
#include "libtier/base/units.h"

#define CONFIG_SOCKET_BYTES 108u /* sun_path of a Unix socket */
#define CONFIG_PATH_BYTES 4096u
#define CONFIG_WORD_BYTES 32u
#define CONFIG_WHY_BYTES 512u /* room for any of the texts below */
#define CONFIG_TIERS 3u
#define CONFIG_KEYS_MAX 72u

/* What the daemon may do by itself, on the operator's word, or not at all. */
enum config_switch { CONFIG_AUTO, CONFIG_ON, CONFIG_OFF };

struct config {
	char socket[CONFIG_SOCKET_BYTES];
	uint32_t socket_mode;
	char store_path[CONFIG_PATH_BYTES]; /* a list, until config_paths has split it */
	struct units_size hbm_size;
	struct units_size cxl_size;
	struct units_size nvme_size;
	struct units_size index_size; /* of the tables of contexts, beside the tiers */
	char hbm_backend[CONFIG_WORD_BYTES]; /* "auto" = the best that probes */
	char cxl_backend[CONFIG_WORD_BYTES];
	uint64_t cxl_node; /* bit i: NUMA node i; 0 = the daemon looks for one */
	char nvme_backend[CONFIG_WORD_BYTES];
	char meta_memory[CONFIG_WORD_BYTES];
	bool hbm_direct;
	bool nvme_buffered;
	bool nvme_admit_all;
	uint32_t nvme_discard; /* enum config_switch */
	uint64_t nvme_segment; /* bytes; 0 = from the store's size */
	struct units_size object_cxl, object_nvme; /* 0 = no objects */
	char object_path[CONFIG_PATH_BYTES]; /* "" = beside the store */
	bool object_direct;
	uint64_t staging_max;  /* bytes a client */
	uint32_t clients_max;
	uint32_t nvme_depth;
	bool background_yield;
	uint64_t background_starve; /* ns */
	uint32_t workers; /* 0 = half the processors */
	uint32_t log_level; /* enum log_level */
	uint32_t metrics_port; /* 0 = none */
	char metrics_socket[CONFIG_SOCKET_BYTES]; /* "" = none */
	uint64_t writeback_age;    /* ns */
	uint32_t writeback_percent;
	uint32_t dirty_percent;
	uint32_t pin_percent;
	uint32_t quarantine_percent;
	uint32_t client_requests, client_puts, client_pins;
	uint32_t user_connections; /* 0 = three quarters of clients_max */
	uint32_t user_contexts;
	/* Defaults by tier (hbm, cxl, nvme), of the tier; auto: soft = a fair share, hard = none */
	struct units_size salt_soft[CONFIG_TIERS], salt_hard[CONFIG_TIERS];
	struct units_size salt_pinned[ABI_MEM_TIERS], client_pinned[ABI_MEM_TIERS];
	struct units_size client_soft[CONFIG_TIERS], client_hard[CONFIG_TIERS];
	uint64_t request_deadline; /* ns */
	uint64_t put_deadline;     /* ns */
	uint32_t stream_share;
	uint64_t stream_hold;      /* ns */
	uint64_t stream_again;     /* ns */
	/* Who says so: by key, the file's line; 0 = nobody, CONFIG_COMMAND_LINE. */
	char file[CONFIG_PATH_BYTES];
	uint32_t line[CONFIG_KEYS_MAX];
};
#define CONFIG_COMMAND_LINE UINT32_MAX

/*
 * Fill in the defaults. service: the paths of a system service, else those of an ordinary user.
 * quiet: only warnings and errors are logged unless log.level says otherwise.
 */
void config_defaults(struct config *config, bool service, bool quiet);

/* Is this process a system service: started by root, or by systemd with a runtime directory? */
bool config_is_service(void);

/*
 * Read a file over what is there. Errors: -ENOENT, -EACCES ..., -EINVAL; why = "FILE:LINE: what;
 * what to do".
 */
int config_load(struct config *config, const char *path, char *why, size_t why_bytes);

/* One key. Errors: -EINVAL, why says what and what to do. */
int config_assign(struct config *config, const char *name, const char *value, char *why,
		  size_t why_bytes);

/* One "key=value". Errors: -EINVAL, why says what and what to do. */
int config_set(struct config *config, const char *assignment, char *why, size_t why_bytes);

/* Where a key has its value from: "FILE:LINE: key", "--set key", or the key alone. Returns out. */
const char *config_where(const struct config *config, const char *name, char *out, size_t bytes);

/*
 * The paths of store.path, "/one, /two": cut in place, so that the value is the first of them. A
 * comma that no slash follows is a part of a path. Returns how many there are, at most `max`.
 */
uint32_t config_paths(char *list, const char **path, uint32_t max);

/* Do the values fit together? Errors: -EINVAL. */
int config_check(const struct config *config, char *why, size_t why_bytes);

/*
 * The file was read anew: take from it the keys that may change while the daemon runs. tell names
 * each key that differs, and whether it was taken. Both are as config_load left them.
 */
void config_reload(struct config *config, const struct config *anew,
		   void (*tell)(void *arg, const char *name, bool taken), void *arg);

/* The i-th key for help texts and tests; false after the last. An empty value = it depends. */
struct config_help {
	const char *name;
	const char *value;
	const char *help;
};
bool config_key(uint32_t i, struct config_help *out);

#endif
