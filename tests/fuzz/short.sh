#!/usr/bin/env bash
# The short run of every fuzz target and its canary, as a test: TAP, from a fixed seed. Skips where
# the programs could not be built for want of clang or its libFuzzer.
# SPDX-License-Identifier: Apache-2.0
if [ ! -x "${BUILD:?}/fuzz_ring" ]; then
	echo 'no fuzz targets here: they need clang with libFuzzer (clang, libclang-rt-14-dev)'
	exit 77
fi
exec "$(dirname "$0")/run" short "$@"
