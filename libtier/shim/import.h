/* SPDX-License-Identifier: Apache-2.0 */
/* `tier import`: weights become objects, layer by layer. */
#ifndef LIBTIER_SHIM_IMPORT_H
#define LIBTIER_SHIM_IMPORT_H

/* argv[0] is "import". The exit status: 0, 1, or 125 for a wrong use. */
int import_main(int argc, char **argv);

#endif
