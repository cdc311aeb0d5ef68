/* SPDX-License-Identifier: Apache-2.0 */
#include "control/why.h"

#include <stdarg.h>
#include <stdio.h>

int sfs_fail(struct sfs_why *why, int err, const char *fmt, ...)
{
	va_list args;

	if (!why || why->text[0])
		return err;
	va_start(args, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, args);
	va_end(args);
	return err;
}
