/* SPDX-License-Identifier: Apache-2.0 */
/* What tierctl shows of CXL regions, out of a folder that looks like sysfs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/lib/unit.h"
#include "tierd/ctl/cxl.h"

static void put(const char *root, const char *device, const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "mkdir -p %s/sys/bus/cxl/devices/%s", root, device);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "%s/sys/bus/cxl/devices/%s/%s", root, device, name);
	f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "%s\n", text);
	fclose(f);
}

static void shows(const char *root, const char *want)
{
	char *text = NULL;
	size_t bytes;
	FILE *to = open_memstream(&text, &bytes);

	ctl_cxl_regions(root, to);
	fclose(to);
	assert_string_equal(text, want);
	free(text);
}

static void test_regions(void **state)
{
	const char *tmp = getenv("TMPDIR");
	char root[128], command[160];

	(void)state;
	snprintf(root, sizeof(root), "%.90s/tier-cxl-XXXXXX", tmp ? tmp : "/tmp");
	assert_non_null(mkdtemp(root));
	shows(root, "");
	put(root, "mem0", "numa_node", "0");
	put(root, "region0", "size", "0x10000000");
	put(root, "region0", "commit", "1");
	put(root, "region0", "target0", "decoder2.0");
	put(root, "region0", "target1", ""); /* not set */
	put(root, "decoder2.0", "mode", "ram");
	put(root, "decoder2.0", "dpa_size", "0x10000000");
	put(root, "region1", "commit", "0"); /* its device goes while we look */
	put(root, "region1", "target0", "decoder3.0");
	shows(root, "  cxl region0        256 MiB, committed, decoder2.0 (ram, 256 MiB)\n"
		    "  cxl region1        ?, not committed, decoder3.0 (?, ?)\n");
	snprintf(command, sizeof(command), "rm -r %s", root);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = { cmocka_unit_test(test_regions) };

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("ctl cxl", tests, NULL, NULL);
}
