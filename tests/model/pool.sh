#!/bin/sh
# The cases of pool.pml, all of them when a text has changed; see tests/model/README.md.
# SPDX-License-Identifier: Apache-2.0
exec "$(dirname "$0")/check" pool --changed
