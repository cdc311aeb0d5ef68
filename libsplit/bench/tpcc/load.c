/* SPDX-License-Identifier: Apache-2.0 */
/* The nine tables of TPC-C, with the columns that its transactions use and filling for the others. */
#include "tpcc.h"

#include "../timing.h"

static const char schema[] =
	"CREATE TABLE warehouse (w_id INTEGER PRIMARY KEY, w_name TEXT, w_tax REAL, w_ytd REAL);"
	"CREATE TABLE district (d_w_id INT, d_id INT, d_name TEXT, d_tax REAL, d_ytd REAL, d_next_o_id INT,"
	" PRIMARY KEY (d_w_id, d_id));"
	"CREATE TABLE customer (c_w_id INT, c_d_id INT, c_id INT, c_last TEXT, c_first TEXT, c_credit TEXT, c_discount REAL,"
	" c_balance REAL, c_ytd_payment REAL, c_payment_cnt INT, c_delivery_cnt INT, c_data TEXT,"
	" PRIMARY KEY (c_w_id, c_d_id, c_id));"
	"CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);"
	"CREATE TABLE history (h_c_w_id INT, h_c_d_id INT, h_c_id INT, h_w_id INT, h_d_id INT, h_amount REAL, h_data TEXT);"
	"CREATE TABLE orders (o_w_id INT, o_d_id INT, o_id INT, o_c_id INT, o_entry_d INT, o_carrier_id INT, o_ol_cnt INT,"
	" PRIMARY KEY (o_w_id, o_d_id, o_id));"
	"CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);"
	"CREATE TABLE new_order (no_w_id INT, no_d_id INT, no_o_id INT, PRIMARY KEY (no_w_id, no_d_id, no_o_id));"
	"CREATE TABLE order_line (ol_w_id INT, ol_d_id INT, ol_o_id INT, ol_number INT, ol_i_id INT, ol_supply_w_id INT,"
	" ol_delivery_d INT, ol_quantity INT, ol_amount REAL, ol_dist_info TEXT,"
	" PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number));"
	"CREATE TABLE item (i_id INTEGER PRIMARY KEY, i_name TEXT, i_price REAL, i_data TEXT);"
	"CREATE TABLE stock (s_w_id INT, s_i_id INT, s_quantity INT, s_dist TEXT, s_ytd INT, s_order_cnt INT,"
	" s_remote_cnt INT, s_data TEXT, PRIMARY KEY (s_w_id, s_i_id));";

static void put(struct tpcc *t, sqlite3_stmt *s)
{
	while (sql_row(t, s))
		;
}

/* Letters, `lo` to `hi` of them. */
static const char *filling(struct tpcc *t, int lo, int hi)
{
	static char text[512];
	const int n = (int)between(t, lo, hi);

	for (int i = 0; i < n; i++)
		text[i] = (char)between(t, 'a', 'z');
	text[n] = 0;
	return text;
}

static void load_items(struct tpcc *t)
{
	sqlite3_stmt *item = sql_prepare(t, "INSERT INTO item VALUES (?, ?, ?, ?)"),
		     *stock = sql_prepare(t, "INSERT INTO stock VALUES (?, ?, ?, ?, 0, 0, 0, ?)");

	sql_run(t, "BEGIN");
	for (int64_t i = 1; i <= t->items; i++) {
		sql_bind(t, item, "isds", i, "name of an item", (double)between(t, 100, 10000) / 100, filling(t, 26, 50));
		put(t, item);
		for (int64_t w = 1; w <= t->warehouses; w++) {
			sql_bind(t, stock, "iiiss", w, i, between(t, 10, 100), "distdistdistdistdistdist", filling(t, 26, 50));
			put(t, stock);
		}
	}
	sql_run(t, "COMMIT");
	sqlite3_finalize(item);
	sqlite3_finalize(stock);
}

static void load_customers(struct tpcc *t, int64_t w, int64_t d)
{
	sqlite3_stmt *customer = sql_prepare(t, "INSERT INTO customer VALUES (?, ?, ?, ?, ?, ?, ?, -10, 10, 1, 0, ?)"),
		     *history = sql_prepare(t, "INSERT INTO history VALUES (?1, ?2, ?3, ?1, ?2, 10, ?4)");
	char name[16];

	for (int64_t c = 1; c <= t->customers; c++) {
		last_name(c <= 1000 ? c - 1 : uneven(t, 255, 0, 999), name);
		sql_bind(t, customer, "iiisssds", w, d, c, name, filling(t, 8, 16), between(t, 1, 10) == 1 ? "BC" : "GC",
			 (double)between(t, 0, 5000) / 10000, filling(t, 300, 500));
		put(t, customer);
		sql_bind(t, history, "iiis", w, d, c, filling(t, 12, 24));
		put(t, history);
	}
	sqlite3_finalize(customer);
	sqlite3_finalize(history);
}

/* As many as customers; the last three tenths are not delivered yet. */
static void load_orders(struct tpcc *t, int64_t w, int64_t d)
{
	sqlite3_stmt *order = sql_prepare(t, "INSERT INTO orders VALUES (?, ?, ?, ?, 0, ?, ?)"),
		     *fresh = sql_prepare(t, "INSERT INTO new_order VALUES (?, ?, ?)"),
		     *line = sql_prepare(t, "INSERT INTO order_line VALUES (?1, ?2, ?3, ?4, ?5, ?1, ?6, 5, ?7, ?8)");

	for (int64_t o = 1; o <= t->customers; o++) {
		const bool delivered = o <= t->customers * 7 / 10;
		const int64_t lines = between(t, LINES_MIN, LINES_MAX);

		/* Each customer has one, in an order that is not that of their numbers. */
		sql_bind(t, order, "iiiiii", w, d, o, o * 7 % t->customers + 1, delivered ? between(t, 1, 10) : (int64_t)0,
			 lines);
		put(t, order);
		for (int64_t l = 1; l <= lines; l++) {
			sql_bind(t, line, "iiiiiids", w, d, o, l, between(t, 1, t->items), (int64_t)delivered,
				 delivered ? 0.0 : (double)between(t, 1, 999999) / 100, "distdistdistdistdistdist");
			put(t, line);
		}
		if (delivered)
			continue;
		sql_bind(t, fresh, "iii", w, d, o);
		put(t, fresh);
	}
	sqlite3_finalize(order);
	sqlite3_finalize(fresh);
	sqlite3_finalize(line);
}

void load(struct tpcc *t)
{
	sqlite3_stmt *warehouse, *district;

	sql_run(t, schema);
	load_items(t);
	warehouse = sql_prepare(t, "INSERT INTO warehouse VALUES (?, 'name', 0.1, 300000)");
	district = sql_prepare(t, "INSERT INTO district VALUES (?, ?, 'name', 0.1, 30000, ?)");
	for (int64_t w = 1; w <= t->warehouses; w++) {
		sql_run(t, "BEGIN");
		sql_bind(t, warehouse, "i", w);
		put(t, warehouse);
		for (int64_t d = 1; d <= DISTRICTS; d++) {
			sql_bind(t, district, "iii", w, d, (int64_t)t->customers + 1);
			put(t, district);
			load_customers(t, w, d);
			load_orders(t, w, d);
		}
		sql_run(t, "COMMIT");
	}
	sqlite3_finalize(warehouse);
	sqlite3_finalize(district);
}
