/* SPDX-License-Identifier: Apache-2.0 */
/* An error of the tools: a negative errno value for the program, and a sentence for its user that says what to do. */
#ifndef SFS_WHY_H
#define SFS_WHY_H

struct sfs_why {
	char text[512];
};

/* Write the sentence (printf style, no newline) and return err. Keeps the first sentence: the cause comes before its effects. */
int sfs_fail(struct sfs_why *why, int err, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
