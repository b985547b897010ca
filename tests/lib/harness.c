/*
 * Linked into every test program. It makes standard output line-buffered before main, so that the
 * lines of a test that aborts reach tests/run and each case is counted; it never judges a test.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stdio.h>

__attribute__((constructor)) static void line_buffer_stdout(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}
