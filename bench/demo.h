/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `tierbench demo`: the whole of `make demo` after the build. Starts a daemon, replays the trace
 * through engine processes, tells what came of it, restarts the daemon and reads from the
 * recovered store. The script bench/demo chooses the sizes and the directory.
 */
#ifndef TIER_BENCH_DEMO_H
#define TIER_BENCH_DEMO_H

/* argv[0] is "demo". Returns the exit status: 0 all went well and every byte was right. */
int demo_main(int argc, char **argv);

#endif
