#!/bin/sh
# Every planted bug must be caught by the simulator; see tests/sim/plants.
# SPDX-License-Identifier: Apache-2.0
exec tests/sim/plants "$BUILD"
