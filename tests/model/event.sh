#!/bin/sh
# The cases of event.pml; see tests/model/README.md.
# SPDX-License-Identifier: Apache-2.0
exec "$(dirname "$0")/check" event
