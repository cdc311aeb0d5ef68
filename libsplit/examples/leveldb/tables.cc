/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A reader of LevelDB's tables, to be built with LevelDB as it is and with its patch.
 *
 *   tables make DB N SIZE     N values of SIZE bytes, in tables
 *   tables read DB TURNS      reads each value TURNS times in a random order, and says how many bytes they had
 *   tables outlive DB         opens an iterator, deletes all of the database's files, and reads on: each value is there
 */
#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "leveldb/cache.h"
#include "leveldb/db.h"

static void must(const leveldb::Status &s)
{
	if (s.ok())
		return;
	fprintf(stderr, "tables: %s\n", s.ToString().c_str());
	exit(1);
}

static std::unique_ptr<leveldb::DB> open_db(const std::string &path, bool create)
{
	static const std::unique_ptr<leveldb::Cache> none(leveldb::NewLRUCache(0)); /* blocks come from the file each time */
	leveldb::Options o;
	leveldb::DB *db;

	o.create_if_missing = create;
	o.compression = leveldb::kNoCompression;
	o.block_cache = none.get();
	must(leveldb::DB::Open(o, path, &db));
	return std::unique_ptr<leveldb::DB>(db);
}

static std::string key_of(unsigned i)
{
	char key[16];

	snprintf(key, sizeof(key), "%08u", i);
	return key;
}

/* What a key's value is. */
static std::string value_of(unsigned i, size_t size)
{
	std::string v(size, 0);
	std::minstd_rand rnd(i + 1);

	for (char &c : v)
		c = (char)(rnd() >> 8);
	return v;
}

static void make(const std::string &path, unsigned n, size_t size)
{
	const std::unique_ptr<leveldb::DB> db = open_db(path, true);

	for (unsigned i = 0; i < n; i++)
		must(db->Put(leveldb::WriteOptions(), key_of(i), value_of(i, size)));
	db->CompactRange(nullptr, nullptr);
}

/* How many values there are; compare: each is what it should be. */
static unsigned count(leveldb::DB *db, bool compare)
{
	const std::unique_ptr<leveldb::Iterator> it(db->NewIterator(leveldb::ReadOptions()));
	unsigned n = 0;

	for (it->SeekToFirst(); it->Valid(); it->Next(), n++)
		if (it->key() != key_of(n) || (compare && it->value() != value_of(n, it->value().size()))) {
			fprintf(stderr, "tables: %s has another value\n", it->key().ToString().c_str());
			exit(1);
		}
	must(it->status());
	return n;
}

static void read(const std::string &path, unsigned turns)
{
	const std::unique_ptr<leveldb::DB> db = open_db(path, false);
	const unsigned n = count(db.get(), false);
	std::minstd_rand rnd(7);
	std::string value;
	size_t bytes = 0;

	for (unsigned long i = 0; i < (unsigned long)n * turns; i++) {
		must(db->Get(leveldb::ReadOptions(), key_of((unsigned)(rnd() % n)), &value));
		bytes += value.size();
	}
	printf("%zu\n", bytes);
}

static void outlive(const std::string &path)
{
	const std::unique_ptr<leveldb::DB> db = open_db(path, false);
	const unsigned n = count(db.get(), true); /* all tables are open */
	DIR *dir = opendir(path.c_str());
	unsigned gone = 0;

	while (const dirent *e = dir ? readdir(dir) : nullptr)
		gone += unlink((path + "/" + e->d_name).c_str()) == 0;
	closedir(dir);
	printf("%u files deleted, %u values before, %u after\n", gone, n, count(db.get(), true));
}

int main(int argc, char **argv)
{
	const std::string what = argc > 2 ? argv[1] : "";

	if (what == "make" && argc == 5)
		make(argv[2], (unsigned)atoi(argv[3]), (size_t)atoi(argv[4]));
	else if (what == "read" && argc == 4)
		read(argv[2], (unsigned)atoi(argv[3]));
	else if (what == "outlive" && argc == 3)
		outlive(argv[2]);
	else
		return 2;
	return 0;
}
