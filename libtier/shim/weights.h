/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Headers of files of weights: which tensors there are, where their bytes lie, and which layer each
 * is of. The bytes of a file are judged like anybody's: what lies outside of it, overlaps, or has
 * not the size that its type and shape say, refuses the file.
 */
#ifndef LIBTIER_SHIM_WEIGHTS_H
#define LIBTIER_SHIM_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

#define WEIGHTS_MAX (1u << 20)	  /* tensors */
#define WEIGHTS_NAME_BYTES 256u	  /* with the NUL: printable, no space */
#define WEIGHTS_LAYER_LAST 99999u /* behind all layers; embeddings are of layer 0 */

struct weight {
	char name[WEIGHTS_NAME_BYTES];
	char type[16];	/* as the file calls it */
	char shape[64]; /* "4096x128" */
	uint64_t at, bytes; /* in the file */
	uint32_t layer;	    /* 1 + the number in its name */
	uint32_t expert;    /* 1 + the number behind "experts." in it; 0: of none */
	uint32_t file;	    /* the caller's */
};

struct weights {
	struct weight *list;
	uint32_t count, room;
};

/*
 * Append the tensors of a file. *why: what is wrong with it. Errors: -EBADMSG it is no safetensors
 * or gguf file, or one that lies; -ENOMEM.
 */
int weights_parse(struct weights *w, const uint8_t *bytes, uint64_t count, uint32_t file,
		  const char **why);
/* In the order of layers; in one what is of no expert, then expert by expert, as in their files. */
void weights_sort(struct weights *w);
void weights_free(struct weights *w);

#endif
