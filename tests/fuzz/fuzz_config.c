/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration text: a file for config_load, and its lines again as --set arguments.
 *
 * Must hold: a refusal says why, in printable words; what was accepted and fits together lies
 * within the limits that the rest of the daemon relies on, and its texts end.
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"
#include "tierd/config.h"
#include "tierd/core/core.h"

static int file = -1;
static char path[32];

void fuzz_open(void)
{
	file = memfd_create("config", MFD_CLOEXEC);
	FUZZ_CHECK(file >= 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	setenv("XDG_RUNTIME_DIR", "/run/user/7", 1);
	setenv("HOME", "/home/seven", 1);
}

static bool ends(const char *text, size_t bytes)
{
	return memchr(text, 0, bytes) != NULL;
}

static void check_why(const char *why, size_t bytes)
{
	FUZZ_CHECK(why[0] && ends(why, bytes));
	for (const char *c = why; *c; c++)
		FUZZ_CHECK(*c >= 0x20 && *c < 0x7f);
}

static void check_values(const struct config *k)
{
	char why[CONFIG_WHY_BYTES] = "";

	FUZZ_CHECK(ends(k->socket, sizeof(k->socket)));
	FUZZ_CHECK(ends(k->store_path, sizeof(k->store_path)));
	FUZZ_CHECK(ends(k->hbm_backend, sizeof(k->hbm_backend)));
	FUZZ_CHECK(ends(k->cxl_backend, sizeof(k->cxl_backend)));
	if (config_check(k, why, sizeof(why))) {
		check_why(why, sizeof(why));
		return;
	}
	FUZZ_CHECK(k->socket[0] == '/' && k->socket_mode <= 0777);
	FUZZ_CHECK(k->clients_max > 0 && k->clients_max <= CORE_CLIENTS_MAX);
	FUZZ_CHECK(k->staging_max >= 1u << 20 && k->staging_max <= 1ull << 40);
	FUZZ_CHECK(k->dirty_percent > 0 && k->dirty_percent <= 80);
	FUZZ_CHECK(k->writeback_percent > 0 && k->writeback_percent <= 50);
	FUZZ_CHECK(k->nvme_depth > 0 && k->nvme_depth <= CORE_DEPTH_MAX);
	FUZZ_CHECK(k->background_starve > 0);
	FUZZ_CHECK(k->pin_percent > 0 && k->pin_percent <= 80);
	FUZZ_CHECK(k->workers <= 256 && k->nvme_segment % 4096 == 0);
	FUZZ_CHECK(k->request_deadline > 0 && k->put_deadline > 0 && k->writeback_age > 0);
}

/* The line without its end, as a string of its own on the heap. */
static void try_line(struct config *k, const char *line, size_t bytes)
{
	char *text = malloc(bytes + 1);
	char why[CONFIG_WHY_BYTES] = "";
	int rc;

	FUZZ_CHECK(text);
	memcpy(text, line, bytes);
	text[bytes] = '\0';
	rc = config_set(k, text, why, sizeof(why));
	FUZZ_CHECK(rc == 0 || rc == -EINVAL);
	if (rc)
		check_why(why, sizeof(why));
	free(text);
}

void fuzz_one(struct fuzz_input *in)
{
	uint8_t how = fuzz_u8(in);
	char why[CONFIG_WHY_BYTES] = "";
	struct config k;
	int rc;

	config_defaults(&k, how & 1, how & 2);
	FUZZ_CHECK(ftruncate(file, 0) == 0 &&
		   pwrite(file, in->at, in->left, 0) == (ssize_t)in->left);
	rc = config_load(&k, path, why, sizeof(why));
	FUZZ_CHECK(rc == 0 || rc == -EINVAL);
	if (rc)
		check_why(why, sizeof(why));
	check_values(&k);
	while (in->left) {
		const uint8_t *end = memchr(in->at, '\n', in->left);
		size_t bytes = end ? (size_t)(end - in->at) : in->left;

		try_line(&k, (const char *)in->at, bytes);
		bytes += end != NULL;
		in->at += bytes;
		in->left -= bytes;
	}
	check_values(&k);
}

/* ---- seeds -------------------------------------------------------------------------------- */

static void put_text(struct fuzz_seed *s, const char *text)
{
	fuzz_put(s, text, strlen(text));
}

void fuzz_seeds(void)
{
	static struct fuzz_seed s;
	struct config_help key;

	/* every key with its default, as a flat file and as --set takes them */
	fuzz_put_u8(&s, 0);
	for (uint32_t i = 0; config_key(i, &key); i++) {
		put_text(&s, key.name);
		put_text(&s, "=");
		put_text(&s, key.value[0] ? key.value : "/tmp/x");
		put_text(&s, "\n");
	}
	fuzz_seed_end(&s, "flat");
	fuzz_put_u8(&s, 1);
	put_text(&s, "# comment\n[cxl]\nsize = 25%\nbackend = numa_1\n[store]\n"
		     "path = /var/lib/x ; more\nwriteback.age = 1.5s\n[hbm]\nsize: 0\n");
	fuzz_seed_end(&s, "sections");
	fuzz_put_u8(&s, 2);
	put_text(&s, "socket = /a\nsocket = /b\nlog.level = verbose\n no_equals\n[open\n"
		     "workers = 18446744073709551617\n");
	fuzz_seed_end(&s, "wrong");
	fuzz_put_u8(&s, 0);
	for (uint32_t i = 0; i < 30; i++)
		put_text(&s, "store.path=/0123456789/0123456789/0123456789/0123456789");
	fuzz_seed_end(&s, "long");
}
