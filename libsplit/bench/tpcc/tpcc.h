/* SPDX-License-Identifier: Apache-2.0 */
/* A load in the manner of TPC-C on SQLite: what its parts have in common. */
#ifndef BENCH_TPCC_H
#define BENCH_TPCC_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#define DISTRICTS 10
#define LINES_MIN 5
#define LINES_MAX 15

struct tpcc {
	sqlite3 *db;
	sqlite3_stmt **statements;	  /* of transactions.c */
	int warehouses, customers, items; /* customers of a district */
	uint64_t random;
	uint64_t new_orders, rolled_back;
};

/* sql.c. Whatever fails ends the program. */
void sql_run(struct tpcc *t, const char *text);
sqlite3_stmt *sql_prepare(struct tpcc *t, const char *text);
/* Values for the statement's parameters: i int64_t, d double, s text. */
void sql_bind(struct tpcc *t, sqlite3_stmt *s, const char *types, ...);
/* Is there a row (more)? At the end it is reset. */
bool sql_row(struct tpcc *t, sqlite3_stmt *s);
/* Of lo to hi, both included. */
int64_t between(struct tpcc *t, int64_t lo, int64_t hi);
/* TPC-C's uneven choice: a is 255, 1023 or 8191. */
int64_t uneven(struct tpcc *t, int64_t a, int64_t lo, int64_t hi);
/* A customer's last name of three syllables, up to 15 bytes. */
void last_name(int64_t number, char name[16]);

/* load.c: the tables, filled, in one transaction each. */
void load(struct tpcc *t);

/* transactions.c */
void transactions_begin(struct tpcc *t);
void transactions_end(struct tpcc *t);
/* One, by the mix: New-Order 45, Payment 43, Order-Status 4, Delivery 4, Stock-Level 4 of a hundred. */
void transaction(struct tpcc *t);

#endif
