/* SPDX-License-Identifier: Apache-2.0 */
/* Statements, random numbers, names. */
#include "tpcc.h"

#include <stdarg.h>

#include "../timing.h"

static void die(struct tpcc *t, const char *what)
{
	fprintf(stderr, "tpcc: %s: %s\n", what, t->db ? sqlite3_errmsg(t->db) : "no database");
	exit(1);
}

void sql_run(struct tpcc *t, const char *text)
{
	if (sqlite3_exec(t->db, text, NULL, NULL, NULL) != SQLITE_OK)
		die(t, text);
}

sqlite3_stmt *sql_prepare(struct tpcc *t, const char *text)
{
	sqlite3_stmt *s;

	if (sqlite3_prepare_v2(t->db, text, -1, &s, NULL) != SQLITE_OK)
		die(t, text);
	return s;
}

void sql_bind(struct tpcc *t, sqlite3_stmt *s, const char *types, ...)
{
	va_list list;
	int r = SQLITE_OK;

	sqlite3_reset(s);
	va_start(list, types);
	for (int i = 1; *types && r == SQLITE_OK; i++, types++)
		r = *types == 'i'   ? sqlite3_bind_int64(s, i, va_arg(list, int64_t))
		    : *types == 'd' ? sqlite3_bind_double(s, i, va_arg(list, double))
				    : sqlite3_bind_text(s, i, va_arg(list, const char *), -1, SQLITE_TRANSIENT);
	va_end(list);
	if (r != SQLITE_OK)
		die(t, sqlite3_sql(s));
}

bool sql_row(struct tpcc *t, sqlite3_stmt *s)
{
	const int r = sqlite3_step(s);

	if (r == SQLITE_ROW)
		return true;
	if (r != SQLITE_DONE)
		die(t, sqlite3_sql(s));
	sqlite3_reset(s);
	return false;
}

int64_t between(struct tpcc *t, int64_t lo, int64_t hi)
{
	return lo + (int64_t)((next_random(&t->random) >> 11) % (uint64_t)(hi - lo + 1));
}

int64_t uneven(struct tpcc *t, int64_t a, int64_t lo, int64_t hi)
{
	return (between(t, 0, a) | between(t, lo, hi)) % (hi - lo + 1) + lo;
}

void last_name(int64_t number, char name[16])
{
	static const char *const parts[] = {"BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"};

	snprintf(name, 16, "%s%s%s", parts[number / 100 % 10], parts[number / 10 % 10], parts[number % 10]);
}
