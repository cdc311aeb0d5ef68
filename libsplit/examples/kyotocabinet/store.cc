/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store of large values, to be built with Kyoto Cabinet as it is and with its patch.
 *
 *   store write FILE N TURNS  N values of 128 KiB, each written TURNS times; durable after each turn
 *   store check FILE N        each value is what it was written as last, and there are no others
 */
#include <kchashdb.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

enum { SIZE = 128 << 10 };

static kyotocabinet::HashDB db;

static void must(bool ok)
{
	if (ok)
		return;
	fprintf(stderr, "store: %s: %s\n", db.error().name(), db.error().message());
	exit(1);
}

static std::string key_of(unsigned i)
{
	return "key" + std::to_string(i);
}

/* A value says whose it is and of which turn, in each of its words. */
static void fill(uint64_t *value, uint64_t i, uint64_t turn)
{
	for (uint64_t k = 0; k < SIZE / sizeof(*value); k++)
		value[k] = (i << 40 | turn << 20 | k) * 0x9e3779b97f4a7c15ull;
}

static uint64_t value[SIZE / sizeof(uint64_t)], found[SIZE / sizeof(uint64_t)];

static void write_all(unsigned n, unsigned turns)
{
	for (unsigned t = 0; t < turns; t++) {
		for (unsigned i = 0; i < n; i++) {
			const std::string key = key_of(i);

			fill(value, i, t);
			must(db.set(key.data(), key.size(), (const char *)value, SIZE));
		}
		must(db.synchronize(true));
	}
	must(db.set("turns", std::to_string(turns)));
}

static void check(unsigned n)
{
	std::string turns;

	must(db.get("turns", &turns) && db.count() == n + 1);
	for (unsigned i = 0; i < n; i++) {
		const std::string key = key_of(i);

		fill(value, i, (uint64_t)atoi(turns.c_str()) - 1);
		if (db.get(key.data(), key.size(), (char *)found, SIZE) != SIZE || memcmp(found, value, SIZE) != 0) {
			fprintf(stderr, "store: %s has another value\n", key.c_str());
			exit(1);
		}
	}
}

int main(int argc, char **argv)
{
	const std::string what = argc > 3 ? argv[1] : "";

	db.tune_map(0); /* by read and write, not through a mapping */
	must(what != "" && db.open(argv[2], kyotocabinet::HashDB::OWRITER | kyotocabinet::HashDB::OCREATE));
	if (what == "write" && argc == 5)
		write_all((unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]));
	else if (what == "check")
		check((unsigned)atoi(argv[3]));
	must(db.close());
	return 0;
}
