#!/bin/sh
# The cases of era.pml, all of them when a text has changed; see tests/model/README.md.
# SPDX-License-Identifier: Apache-2.0
exec "$(dirname "$0")/check" era --changed
