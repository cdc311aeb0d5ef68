/* SPDX-License-Identifier: Apache-2.0 */
/* Where this library's own code is in memory, by symbols of the linker. */
#ifndef SFS_CODE_H
#define SFS_CODE_H

/* Its first byte, before the code. */
extern const char __ehdr_start[] __attribute__((visibility("hidden")));
/* The end of its code. */
extern const char etext[] __attribute__((visibility("hidden")));

#endif
