/* SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <inttypes.h>

/* Length of the UTF-8 sequence at s, 0 when it is none. */
static int utf8(const unsigned char *s)
{
	const int n = *s < 0x80			? 1
		      : *s >= 0xc2 && *s < 0xe0 ? 2
		      : *s >= 0xe0 && *s < 0xf0 ? 3
		      : *s >= 0xf0 && *s < 0xf5 ? 4
						: 0;

	for (int i = 1; i < n; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0)))
		return 0;
	if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90)))
		return 0;
	return n;
}

static void quoted(FILE *out, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	fputc('"', out);
	while (*s) {
		const int n = utf8(s);

		if (*s == '"' || *s == '\\')
			fprintf(out, "\\%c", *s);
		else if (*s < 0x20 || *s == 0x7f)
			fprintf(out, "\\u%04x", *s);
		else if (n == 0)
			fputs("\\ufffd", out);
		else
			fwrite(s, 1, (size_t)n, out);
		s += n ? n : 1;
	}
	fputc('"', out);
}

static void begin(struct json *j, const char *key)
{
	if (j->comma)
		fputc(',', j->out);
	j->comma = true;
	if (key) {
		quoted(j->out, key);
		fputc(':', j->out);
	}
}

void json_object(struct json *j, const char *key)
{
	begin(j, key);
	fputc('{', j->out);
	j->comma = false;
}

void json_object_end(struct json *j)
{
	fputc('}', j->out);
	j->comma = true;
}

void json_array(struct json *j, const char *key)
{
	begin(j, key);
	fputc('[', j->out);
	j->comma = false;
}

void json_array_end(struct json *j)
{
	fputc(']', j->out);
	j->comma = true;
}

void json_string(struct json *j, const char *key, const char *s)
{
	begin(j, key);
	quoted(j->out, s);
}

void json_number(struct json *j, const char *key, uint64_t v)
{
	begin(j, key);
	fprintf(j->out, "%" PRIu64, v);
}

void json_bool(struct json *j, const char *key, bool v)
{
	begin(j, key);
	fputs(v ? "true" : "false", j->out);
}
