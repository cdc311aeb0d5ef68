/* SPDX-License-Identifier: Apache-2.0 */
/* Which workloads are run: the list that the explorer goes through. */
#include "crash/sequences.h"

#include <stdlib.h>
#include <string.h>

#include "crash/workload.h"
#include "harness.h"

static char (*workloads)[24];
static uint32_t nworkloads;

const char *sequence(uint32_t i)
{
	return workloads[i];
}

uint32_t sequences(void)
{
	return nworkloads;
}

static void add(const char *s, unsigned n)
{
	workloads = reallocarray(workloads, nworkloads + 1, sizeof(*workloads));
	CHECK(workloads && n < sizeof(*workloads));
	memcpy(workloads[nworkloads], s, n);
	workloads[nworkloads++][n] = 0;
}

void sequences_all(const char *letters, unsigned length)
{
	const size_t base = strlen(letters);
	char s[8];
	uint64_t total = 1;

	for (unsigned i = 0; i < length; i++)
		total *= base;
	for (uint64_t k = 0; k < total; k++) {
		uint64_t rest = k;

		for (unsigned i = length; i-- > 0; rest /= base)
			s[i] = letters[rest % base];
		add(s, length);
	}
}

void sequences_sampled(unsigned length, unsigned how_many, uint64_t seed)
{
	const char *letters = workload_letters();
	uint64_t rnd = seed | 1;
	char s[8];

	for (unsigned k = 0; k < how_many; k++) {
		for (unsigned i = 0; i < length; i++)
			s[i] = letters[test_below(&rnd, strlen(letters))];
		add(s, length);
	}
}

/*
 * Of 5 to 12 operations. Half of them are of the core, and every fourth makes what is staged the file's, or durable: a log and a
 * pool that have been used.
 */
void sequences_lengthy(unsigned how_many, uint64_t seed)
{
	static const char turns[] = "kKKffdgEQ";
	const char *letters = workload_letters(), *core = workload_core();
	uint64_t rnd = seed ^ 0x10e6;
	char s[16];

	for (unsigned k = 0; k < how_many; k++) {
		const unsigned n = WORKLOAD_LENGTHY + (unsigned)test_below(&rnd, 8);

		for (unsigned i = 0; i < n; i++) {
			const char *of = test_below(&rnd, 4) == 0 ? turns : test_below(&rnd, 2) ? core : letters;

			s[i] = of[test_below(&rnd, strlen(of))];
		}
		add(s, n);
	}
}

/* Writes beside others: what can be seen of them with one thread, and a while of it. */
static void company(void)
{
	static const char *const of[] = {"|o", "|O", "a|a", "u|p", "p|u", "o|o", "o|O", "o|w", "a|af", "o|Ok", "a|ao"};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		add(of[i], (unsigned)strlen(of[i]));
}

/* What longer sequences have found, made as short as it goes. */
static void found(void)
{
	static const char *const of[] = {"buEY", "Hqvf", "Rpf", "Yt", "OfeX", "pfef", "3t7O", "5yt",
					 "pg5S", "6Lt",	 "p4H", "ze", "bgi",  "Bgi",  "BgKi", "BvQu"};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		add(of[i], (unsigned)strlen(of[i]));
}

/* Snapshots and buffers that are kept while the file changes, and are no other than they were. */
static void zero_copy(void)
{
	static const char *const of[] = {"Vo",	"VO",  "VoK", "VOf", "Vt",   "VP",  "VX",  "VU",  "V4",	 "V3K", "VC",  "VMK",
					 "IfW", "IoK", "IIK", "ICf", "It",   "IX",  "CfC", "HkH", "MKM", "Mfo", "NfN", "aNa",
					 "VW",	"AA",  "S",   "Y",   "SS",   "YY",  "YfY", "YKS", "VY",	 "SkS", "fY",  "aS",
					 "JJ",	"JfJ", "JKJ", "AJk", "JxJ",  "bJB", "zJ",  "J4",  "VA",	 "CJC", "J|a", "IVf",
					 "CoC", "HoK", "Ck4", "|Co", "VIoK", "VcW", "IcW", "C|C", "zCK"};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		add(of[i], (unsigned)strlen(of[i]));
}

/*
 * Several staging files, of which one goes back while records name another; ranges of whole blocks, where relink calls the kernel for nothing
 * behind the move; writes behind the end of a file whose last block is staged.
 */
static void staging_files(void)
{
	static const char *const of[] = {"MK", "Mt", "M4",  "a1b", "a1bt", "a1b3", "p1bX", "LLBt",  "a1bKZ",
					 "ah", "aT", "ahk", "ahK", "a0",   "a0k",  "a0K",  "nKahk", "nKa0k"};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		add(of[i], (unsigned)strlen(of[i]));
}

void sequences_named(void)
{
	company();
	found();
	zero_copy();
	staging_files();
}

/* Short ones first; together they come upon every place in the code that stores, flushes, fences or syncs. */
void sequences_for_bugs(void)
{
	static const char *const of[] = {
		"a",	 "p",	"o",	"O",   "e",    "h",	"v",	  "y",	   "t",	   "T",	  "F",	  "f",	 "c",
		"k",	 "K",	"n",	"r",   "l",    "D",	"m",	  "X",	   "U",	   "j",	  "q",	  "4",	 "34",
		"a3a",	 "aa",	"aap",	"oo",  "aw",   "pk",	"ok",	  "af",	   "aK",   "an",  "pf",	  "ao",	 "Tf",
		"Td",	 "nR",	"ook",	"aQb", "pkaw", "akbaw", "pkanLk", "pkaQb", "aQEw", "oQo", "eQKw", "anL", "fpaf",
		"faapf", "GLk", "LQb",	"tf",  "td",   "nb",	"ng",	  "x",	   "u",	   "uX",  "aX",	  "aU",	 "pK",
		"kao",	 "aaf", "afa",	"afo", "ako",  "L",	"z",	  "vf",	   "uf",   "Lf",  "Lk",	  "LK",	 "GLf",
		"GLK",	 "za",	"zz",	"nbR", "Lfo",  "Lko",	"zKa",	  "azf",   "zfa",  "afz", "zkz",  "LKo", "uuk",
		"afaf",	 "pko", "nBgR", "XaX", "aXa",  "ofk",	"hko",	  "LfL",   "GaK",  "GLc", "zfz",  "pXf", "2a",
		"|o",	 "a|a", "o|O",	"u|p", "o|w",  "a|uf",	"C",	  "H",	   "N",	   "M",	  "Cf",	  "Mf",	 "IfW",
		"VoK",	 "CkC", "A",	"J",   "JJ",   "bJ",	"S",	  "Y",	   "YY",   "3e",  "34e",  "3fe"};

	for (size_t i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		add(of[i], (unsigned)strlen(of[i]));
	sequences_named();
}

void sequences_traces(void)
{
	for (const char *const *t = trace_names(); *t; t++) {
		char name[24];

		snprintf(name, sizeof(name), "@%s", *t);
		add(name, (unsigned)strlen(name));
	}
}
