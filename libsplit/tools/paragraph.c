/* SPDX-License-Identifier: Apache-2.0 */
/* Text that fits the terminal it is written to. Elsewhere a paragraph stays one line, for who looks for something in it. */
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"

#define LEAST 20 /* behind the margin, however narrow the terminal is: nothing can be read in columns of a word */

unsigned cli_columns(FILE *out)
{
	struct winsize w;

	return isatty(fileno(out)) && ioctl(fileno(out), TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

size_t cli_line_length(const char *text, size_t room)
{
	size_t n = strlen(text), end = room;

	if (!room || n <= room)
		return n;
	while (end && text[end] != ' ')
		end--;
	while (end && text[end - 1] == ' ')
		end--;
	/* A word that has no room, such as a path, stays whole. */
	return end ? end : strcspn(text, " ");
}

void cli_paragraph(FILE *out, unsigned indent, const char *fmt, ...)
{
	const unsigned columns = cli_columns(out);
	const size_t room = columns && columns < indent + LEAST ? LEAST : columns ? columns - indent : 0;
	char text[8192];
	const char *at = text;
	va_list args;
	size_t n;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	/* What stands in the margin of the first line is no text to be broken. */
	n = strlen(text) < indent ? strlen(text) : indent;
	fwrite(text, 1, n, out);
	for (at += n;; at += strspn(at, " ")) {
		n = cli_line_length(at, room);
		fprintf(out, "%.*s\n", (int)n, at);
		at += n;
		if (!*at)
			return;
		fprintf(out, "%*s", (int)indent, "");
	}
}
