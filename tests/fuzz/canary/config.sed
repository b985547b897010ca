# file: tierd/config.c
# A refused text is quoted whole.
# SPDX-License-Identifier: Apache-2.0
s/text\[i\] \&\& i < 64/text[i]/
