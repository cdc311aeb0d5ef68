/* SPDX-License-Identifier: Apache-2.0 */
/* Text without stdio. *n: bytes of buf in use; what does not fit is cut off, and there is always a 0 behind. */
#ifndef SFS_TEXT_H
#define SFS_TEXT_H

#include <stddef.h>

static inline void sfs_text_add(char *buf, size_t *n, size_t size, const char *s)
{
	while (*s && *n + 1 < size)
		buf[(*n)++] = *s++;
	buf[*n] = 0;
}

static inline void sfs_text_number(char *buf, size_t *n, size_t size, unsigned v)
{
	char digits[12];
	int i = sizeof(digits) - 1;

	digits[i] = 0;
	do
		digits[--i] = (char)('0' + v % 10);
	while ((v /= 10) != 0);
	sfs_text_add(buf, n, size, digits + i);
}

#endif
