/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A load in the manner of TPC-C on SQLite with a write-ahead log, one connection: the tables, the five transactions and
 * their mix, without terminals, think times and the rules for what may be published. So its figure is no
 * result of TPC-C.
 */
#include "tpcc.h"

#include "../timing.h"

#define WAREHOUSES 1
#define CUSTOMERS  3000
#define ITEMS	   100000

static const char usage[] = "Usage: tpcc make|run FILE PERCENT TRANSACTIONS\n"
			    "\n"
			    "make: a database of one warehouse with PERCENT of TPC-C's customers and items. run: TRANSACTIONS "
			    "in it, and how many that were each second,\n"
			    "each forced by fsync (journal_mode=WAL, synchronous=FULL).\n";

/* What the transactions have done is what they should have. */
static void check(struct tpcc *t)
{
	sqlite3_stmt *s =
		sql_prepare(t, "SELECT sum(d_next_o_id - 1) - (SELECT count(*) FROM orders),"
			       " (SELECT sum(o_ol_cnt) FROM orders) - (SELECT count(*) FROM order_line) FROM district");

	if (!sql_row(t, s) || sqlite3_column_int64(s, 0) != 0 || sqlite3_column_int64(s, 1) != 0) {
		fputs("tpcc: districts, orders and their lines do not agree\n", stderr);
		exit(1);
	}
	sqlite3_finalize(s);
}

int main(int argc, char **argv)
{
	const bool help = argc == 2 && strcmp(argv[1], "--help") == 0, make = argc == 5 && strcmp(argv[1], "make") == 0;
	const long percent = argc == 5 ? strtol(argv[3], NULL, 10) : 0, n = argc == 5 ? strtol(argv[4], NULL, 10) : 0;
	struct tpcc t = {.warehouses = WAREHOUSES, .random = 0x2545f4914f6cdd1du};
	double began;

	if (help || argc != 5 || (!make && strcmp(argv[1], "run")) || percent < 1 || percent > 100 || n < 1) {
		fputs(usage, help ? stdout : stderr);
		return help ? 0 : 2;
	}
	t.customers = (int)(CUSTOMERS * percent / 100);
	t.items = (int)(ITEMS * percent / 100);
	if (sqlite3_open(argv[2], &t.db) != SQLITE_OK)
		fail(argv[2]);
	sql_run(&t, "PRAGMA journal_mode = WAL");
	sql_run(&t, make ? "PRAGMA synchronous = OFF" : "PRAGMA synchronous = FULL");
	if (make) {
		load(&t);
	} else {
		transactions_begin(&t);
		began = now_ns(CLOCK_MONOTONIC);
		for (long i = 0; i < n; i++)
			transaction(&t);
		printf("%.1f transactions/s; %llu new orders, %llu rolled back\n",
		       (double)n / ((now_ns(CLOCK_MONOTONIC) - began) / 1e9), (unsigned long long)t.new_orders,
		       (unsigned long long)t.rolled_back);
		transactions_end(&t);
	}
	check(&t);
	if (sqlite3_close(t.db) != SQLITE_OK)
		fail("close");
	return 0;
}
