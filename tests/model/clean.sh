#!/bin/sh
# The cases of clean.pml; see tests/model/README.md.
# SPDX-License-Identifier: Apache-2.0
exec "$(dirname "$0")/check" clean
