/* SPDX-License-Identifier: Apache-2.0 */
/* The five transactions, each as TPC-C describes it, without a terminal. */
#include "tpcc.h"

#include "../timing.h"

enum sql {
	WAREHOUSE_TAX,
	DISTRICT_NEXT,
	DISTRICT_ADVANCE,
	CUSTOMER_GET,
	CUSTOMERS_NAMED,
	ORDER_PUT,
	NEW_ORDER_PUT,
	ITEM_GET,
	STOCK_GET,
	STOCK_SET,
	LINE_PUT,
	WAREHOUSE_PAID,
	DISTRICT_PAID,
	CUSTOMER_PAID,
	HISTORY_PUT,
	ORDER_LAST,
	LINES_GET,
	NEW_ORDER_OLDEST,
	NEW_ORDER_DROP,
	ORDER_CUSTOMER,
	ORDER_CARRIER,
	LINES_SUM,
	LINES_DELIVERED,
	CUSTOMER_DELIVERED,
	STOCK_LOW,
	STATEMENTS,
};

static const char *const texts[STATEMENTS] = {
	[WAREHOUSE_TAX] = "SELECT w_tax FROM warehouse WHERE w_id = ?",
	[DISTRICT_NEXT] = "SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = ? AND d_id = ?",
	[DISTRICT_ADVANCE] = "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = ? AND d_id = ?",
	[CUSTOMER_GET] = "SELECT c_discount, c_credit, c_balance FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
	[CUSTOMERS_NAMED] = "SELECT c_id FROM customer WHERE c_w_id = ? AND c_d_id = ? AND c_last = ? ORDER BY c_first",
	[ORDER_PUT] = "INSERT INTO orders VALUES (?, ?, ?, ?, 1, 0, ?)",
	[NEW_ORDER_PUT] = "INSERT INTO new_order VALUES (?, ?, ?)",
	[ITEM_GET] = "SELECT i_price, i_name, i_data FROM item WHERE i_id = ?",
	[STOCK_GET] = "SELECT s_quantity, s_dist, s_data FROM stock WHERE s_w_id = ? AND s_i_id = ?",
	[STOCK_SET] = "UPDATE stock SET s_quantity = ?, s_ytd = s_ytd + ?, s_order_cnt = s_order_cnt + 1,"
		      " s_remote_cnt = s_remote_cnt + ? WHERE s_w_id = ? AND s_i_id = ?",
	[LINE_PUT] = "INSERT INTO order_line VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, 'distdistdistdistdistdist')",
	[WAREHOUSE_PAID] = "UPDATE warehouse SET w_ytd = w_ytd + ? WHERE w_id = ?",
	[DISTRICT_PAID] = "UPDATE district SET d_ytd = d_ytd + ? WHERE d_w_id = ? AND d_id = ?",
	[CUSTOMER_PAID] = "UPDATE customer SET c_balance = c_balance - ?1, c_ytd_payment = c_ytd_payment + ?1,"
			  " c_payment_cnt = c_payment_cnt + 1, c_data = CASE c_credit WHEN 'BC' THEN"
			  " substr(?2 || c_data, 1, 500) ELSE c_data END WHERE c_w_id = ?3 AND c_d_id = ?4 AND c_id = ?5",
	[HISTORY_PUT] = "INSERT INTO history VALUES (?, ?, ?, ?, ?, ?, 'name    name')",
	[ORDER_LAST] = "SELECT o_id, o_carrier_id, o_entry_d FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_c_id = ?"
		       " ORDER BY o_id DESC LIMIT 1",
	[LINES_GET] = "SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d FROM order_line"
		      " WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
	[NEW_ORDER_OLDEST] = "SELECT min(no_o_id) FROM new_order WHERE no_w_id = ? AND no_d_id = ?",
	[NEW_ORDER_DROP] = "DELETE FROM new_order WHERE no_w_id = ? AND no_d_id = ? AND no_o_id = ?",
	[ORDER_CUSTOMER] = "SELECT o_c_id FROM orders WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
	[ORDER_CARRIER] = "UPDATE orders SET o_carrier_id = ? WHERE o_w_id = ? AND o_d_id = ? AND o_id = ?",
	[LINES_SUM] = "SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
	[LINES_DELIVERED] = "UPDATE order_line SET ol_delivery_d = 1 WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id = ?",
	[CUSTOMER_DELIVERED] = "UPDATE customer SET c_balance = c_balance + ?, c_delivery_cnt = c_delivery_cnt + 1"
			       " WHERE c_w_id = ? AND c_d_id = ? AND c_id = ?",
	[STOCK_LOW] = "SELECT count(DISTINCT s_i_id) FROM order_line JOIN stock ON s_w_id = ol_w_id AND s_i_id = ol_i_id"
		      " WHERE ol_w_id = ? AND ol_d_id = ? AND ol_o_id >= ? AND ol_o_id < ? AND s_quantity < ?",
};

/* The statement with these values, at its first row where it has one. */
#define at(t, which, types, ...) at_first((t), (sql_bind((t), (t)->statements[which], types, __VA_ARGS__), which))

static sqlite3_stmt *at_first(struct tpcc *t, enum sql which)
{
	sqlite3_stmt *s = t->statements[which];

	return sql_row(t, s) ? s : NULL;
}

/* The same for one number, 0 where there is none; the statement is reset. */
static int64_t number_of(sqlite3_stmt *s)
{
	const int64_t n = s ? sqlite3_column_int64(s, 0) : 0;

	if (s)
		sqlite3_reset(s);
	return n;
}

/* All rows are looked at. */
static void read_all(struct tpcc *t, sqlite3_stmt *s)
{
	while (s && sql_row(t, s))
		;
}

/* Six of ten are known by their last name: the middle one of those who have it. */
static int64_t some_customer(struct tpcc *t, int64_t w, int64_t d)
{
	int64_t found[128], n = 0;
	char name[16];

	if (between(t, 1, 100) > 60)
		return uneven(t, 1023, 1, t->customers);
	/* Of those that the first customers have. */
	last_name(uneven(t, 255, 0, (t->customers < 1000 ? t->customers : 1000) - 1), name);
	for (sqlite3_stmt *s = at(t, CUSTOMERS_NAMED, "iis", w, d, name); s && n < 128; s = sql_row(t, s) ? s : NULL)
		found[n++] = sqlite3_column_int64(s, 0);
	sqlite3_reset(t->statements[CUSTOMERS_NAMED]);
	return n > 0 ? found[n / 2] : 1;
}

/* One line of an order; false: there is no such item. */
static bool order_line(struct tpcc *t, int64_t w, int64_t d, int64_t order, int64_t line, int64_t item)
{
	const int64_t supply = between(t, 1, 100) == 1 ? between(t, 1, t->warehouses) : w, wanted = between(t, 1, 10);
	sqlite3_stmt *s = at(t, ITEM_GET, "i", item);
	const double price = s ? sqlite3_column_double(s, 0) : 0;
	int64_t left;

	if (!s)
		return false;
	sqlite3_reset(s);
	left = number_of(at(t, STOCK_GET, "ii", supply, item)) - wanted;
	at(t, STOCK_SET, "iiiii", left < 10 ? left + 91 : left, wanted, (int64_t)(supply != w), supply, item);
	at(t, LINE_PUT, "iiiiiiid", w, d, order, line, item, supply, wanted, price * (double)wanted);
	return true;
}

/* One of a hundred asks for an item that does not exist, in its last line, and is rolled back. */
static void new_order(struct tpcc *t, int64_t w, int64_t d)
{
	const int64_t customer = uneven(t, 1023, 1, t->customers), lines = between(t, LINES_MIN, LINES_MAX);
	const bool wrong = between(t, 1, 100) == 1;
	int64_t order;
	bool ok = true;

	sql_run(t, "BEGIN IMMEDIATE");
	number_of(at(t, WAREHOUSE_TAX, "i", w));
	order = number_of(at(t, DISTRICT_NEXT, "ii", w, d));
	at(t, DISTRICT_ADVANCE, "ii", w, d);
	number_of(at(t, CUSTOMER_GET, "iii", w, d, customer));
	at(t, ORDER_PUT, "iiiii", w, d, order, customer, lines);
	at(t, NEW_ORDER_PUT, "iii", w, d, order);
	for (int64_t l = 1; l <= lines && ok; l++)
		ok = order_line(t, w, d, order, l, wrong && l == lines ? t->items + 1 : uneven(t, 8191, 1, t->items));
	sql_run(t, ok ? "COMMIT" : "ROLLBACK");
	t->new_orders += ok;
	t->rolled_back += !ok;
}

/* Three of twenty pay in another warehouse than their own. */
static void payment(struct tpcc *t, int64_t w, int64_t d)
{
	const bool home = between(t, 1, 100) <= 85;
	const int64_t cw = home ? w : between(t, 1, t->warehouses), cd = home ? d : between(t, 1, DISTRICTS);
	const double amount = (double)between(t, 100, 500000) / 100;
	char data[64];
	int64_t customer;

	sql_run(t, "BEGIN IMMEDIATE");
	at(t, WAREHOUSE_PAID, "di", amount, w);
	at(t, DISTRICT_PAID, "dii", amount, w, d);
	customer = some_customer(t, cw, cd);
	snprintf(data, sizeof(data), "%d %d %d %d %d %.2f ", (int)customer, (int)cd, (int)cw, (int)d, (int)w, amount);
	at(t, CUSTOMER_PAID, "dsiii", amount, data, cw, cd, customer);
	at(t, HISTORY_PUT, "iiiiid", cw, cd, customer, w, d, amount);
	sql_run(t, "COMMIT");
}

static void order_status(struct tpcc *t, int64_t w, int64_t d)
{
	int64_t customer, order;

	sql_run(t, "BEGIN");
	customer = some_customer(t, w, d);
	number_of(at(t, CUSTOMER_GET, "iii", w, d, customer));
	order = number_of(at(t, ORDER_LAST, "iii", w, d, customer));
	read_all(t, at(t, LINES_GET, "iii", w, d, order));
	sql_run(t, "COMMIT");
}

/* The oldest order of each district that is not delivered. */
static void delivery(struct tpcc *t, int64_t w)
{
	const int64_t carrier = between(t, 1, 10);

	sql_run(t, "BEGIN IMMEDIATE");
	for (int64_t d = 1; d <= DISTRICTS; d++) {
		const int64_t order = number_of(at(t, NEW_ORDER_OLDEST, "ii", w, d));
		sqlite3_stmt *s;
		int64_t customer;
		double sum;

		if (order == 0)
			continue;
		at(t, NEW_ORDER_DROP, "iii", w, d, order);
		customer = number_of(at(t, ORDER_CUSTOMER, "iii", w, d, order));
		at(t, ORDER_CARRIER, "iiii", carrier, w, d, order);
		s = at(t, LINES_SUM, "iii", w, d, order);
		sum = s ? sqlite3_column_double(s, 0) : 0;
		read_all(t, s);
		at(t, LINES_DELIVERED, "iii", w, d, order);
		at(t, CUSTOMER_DELIVERED, "diii", sum, w, d, customer);
	}
	sql_run(t, "COMMIT");
}

static void stock_level(struct tpcc *t, int64_t w, int64_t d)
{
	int64_t next;

	sql_run(t, "BEGIN");
	next = number_of(at(t, DISTRICT_NEXT, "ii", w, d));
	number_of(at(t, STOCK_LOW, "iiiii", w, d, next - 20, next, between(t, 10, 20)));
	sql_run(t, "COMMIT");
}

void transactions_begin(struct tpcc *t)
{
	t->statements = calloc(STATEMENTS, sizeof(*t->statements));
	if (!t->statements)
		fail("memory");
	for (int i = 0; i < STATEMENTS; i++)
		t->statements[i] = sql_prepare(t, texts[i]);
}

void transactions_end(struct tpcc *t)
{
	for (int i = 0; i < STATEMENTS; i++)
		sqlite3_finalize(t->statements[i]);
	free(t->statements);
}

void transaction(struct tpcc *t)
{
	const int64_t w = between(t, 1, t->warehouses), d = between(t, 1, DISTRICTS), which = between(t, 1, 100);

	if (which <= 45)
		new_order(t, w, d);
	else if (which <= 88)
		payment(t, w, d);
	else if (which <= 92)
		order_status(t, w, d);
	else if (which <= 96)
		delivery(t, w);
	else
		stock_level(t, w, d);
}
