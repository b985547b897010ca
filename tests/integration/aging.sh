#!/usr/bin/env bash
# The aging gate: of families of series without a trend it flags few, and it finds a leak.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

bench/aging/aging made-up --families 1000
