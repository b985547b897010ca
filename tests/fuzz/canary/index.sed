# file: libtier/src/lease.c
# A word is followed wherever it leads.
# SPDX-License-Identifier: Apache-2.0
s/(likely(abi_word_addr(word) + bytes <=/(likely(bytes <=/
