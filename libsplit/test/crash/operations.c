/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The operations that workloads are made of, in the manner of ACE (CrashMonkey): on a small tree with a file A that is there and
 * filled. An operation that needs B makes it first.
 */
#include <fcntl.h>
#include <string.h>

#include "crash/app.h"
#include "harness.h"

/* Bytes that say which call wrote them. */
static uint8_t *bytes(const struct app *a, uint64_t n)
{
	static uint8_t buf[KERN_FILE_BLOCKS * KERN_BLOCK];
	uint64_t seed = (uint64_t)a->n * 0x9e3779b97f4a7c15ull + 77;

	CHECK(n <= sizeof(buf));
	test_fill(&seed, buf, n);
	for (uint64_t i = 0; i < n; i += 16)
		buf[i] = (uint8_t)(1 + a->n);
	return buf;
}

static const struct model *now(const struct app *a)
{
	return &a->r->h.state[a->n];
}

static bool there(const struct app *a, const char *path)
{
	return model_find((struct model *)now(a), path) != NULL;
}

static void append(struct app *a, int slot, uint64_t n)
{
	app_append(a, slot, bytes(a, n), n);
}

static void overwrite(struct app *a, uint64_t off, uint64_t n)
{
	app_write(a, A, off, bytes(a, n), n);
}

static void need_b(struct app *a)
{
	if (a->slot[B].fd >= 0)
		return;
	CHECK_EQ(app_open(a, "B", true), B);
	append(a, B, 3000);
}

static void rename_a(struct app *a, const char *to)
{
	app_rename(a, a->slot[A].path, to);
	strcpy(a->slot[A].path, to);
}

/* What the second process does. */
static void operate_other(struct app *a, char letter)
{
	if (letter == '9')
		app_die(a);
	app_process(1);
	if (a->slot[OTHER].fd < 0)
		app_open_other(a, a->slot[A].path);
	switch (letter) {
	case '3':
		append(a, OTHER, 64);
		break;
	case '4':
		app_write(a, OTHER, 250, bytes(a, 100), 100);
		break;
	case '5':
		append(a, OTHER, 5000);
		break;
	case '6':
		app_fsync(a, OTHER, false);
		break;
	case '8':
		app_look(a, OTHER);
		break;
	case '9':
		app_look(a, OTHER);
		append(a, OTHER, 64);
		app_look(a, OTHER);
		break;
	default:
		app_close(a, OTHER);
	}
	if (!a->died)
		app_process(0);
}

/* A file or a directory of that name is in the way: the operation says nothing that a shorter workload does not. */
static bool pointless(const struct app *a, char letter)
{
	const bool named = a->slot[A].path[0] != 0;

	if (a->died) /* of the calls of the first process none is left */
		return !strchr("345678", letter);
	return now(a)->file[a->slot[A].file].size > (KERN_FILE_BLOCKS - 12) * KERN_BLOCK ||
	       (!named && strchr("crRlXUq23456789", letter)) || (letter == '|' && app_has_company(a, A)) ||
	       (strchr("AJ0", letter) && a->r->mode != SFS_STRICT) || (strchr("IV", letter) && a->kept[KEPT - 1].p) ||
	       (letter == 'W' && !app_keeps(a)) || (a->slot[OTHER].fd >= 0 && strchr("RXU", letter)) ||
	       (letter == '7' && a->slot[OTHER].fd < 0) || (letter == 'n' && a->slot[B].fd >= 0) ||
	       (letter == 'j' && there(a, "J")) || (letter == 'l' && there(a, "L")) ||
	       (letter == 'r' && strcmp(a->slot[A].path, "E/A") == 0) ||
	       (letter == 'q' && (strcmp(a->slot[A].path, "A") != 0 || there(a, "E")));
}

bool operate(struct app *a, char letter)
{
	static const uint32_t pieces[3] = {10, 4500, 300};
	const uint64_t size = now(a)->file[a->slot[A].file].size;
	char path[sizeof(a->slot[A].path)];
	int s;

	if (pointless(a, letter))
		return false;
	strcpy(path, a->slot[A].path);
	if (strchr("bBgRxiJ0SY", letter))
		need_b(a);
	switch (letter) {
	case 'a':
		append(a, A, 64);
		break;
	case 'p':
		append(a, A, 4096);
		break;
	case 'u':
		append(a, A, 5000);
		break;
	case 'L':
		append(a, A, 36000);
		break;
	case 'o':
		overwrite(a, 250, 100);
		break;
	case 'O':
		overwrite(a, 1000, 5000);
		break;
	case 'w':
		overwrite(a, size > 100 ? size - 100 : 0, 100);
		break;
	case 'e':
		overwrite(a, size > 70 ? size - 70 : 0, 200);
		break;
	case 'h':
		overwrite(a, size + 3000, 100);
		break;
	case 'C':
		app_patch(a, A, KERN_BLOCK, bytes(a, 2 * KERN_BLOCK), 2 * KERN_BLOCK, false);
		break;
	case 'H':
		app_patch(a, A, 1000, bytes(a, 9000), 9000, false);
		break;
	case 'N':
		app_patch(a, A, size, bytes(a, 5000), 5000, false);
		break;
	case 'M':
		app_patch(a, A, (size + KERN_BLOCK - 1) / KERN_BLOCK * KERN_BLOCK, bytes(a, 9 * KERN_BLOCK), 9 * KERN_BLOCK,
			  false);
		break;
	case 'I':
		app_patch(a, A, 0, bytes(a, 2 * KERN_BLOCK), 2 * KERN_BLOCK, true);
		break;
	case 'A':
		app_write_atomic(
			a, (const struct range[]){{A, 250, 100}, {A, 3000, 5000}, {A, size > 8000 ? size : 8000, 64}, {0}},
			bytes(a, 5164));
		break;
	case 'J':
		app_write_atomic(a,
				 (const struct range[]){
					 {A, 4000, 200}, {B, 100, 50}, {B, now(a)->file[a->slot[B].file].size, 5000}, {0}},
				 bytes(a, 5250));
		break;
	case '0':
		app_write_atomic(a, (const struct range[]){{A, size + KERN_BLOCK, 64}, {B, 100, 50}, {0}}, bytes(a, 114));
		break;
	case 'S':
		if (size < 1100 || now(a)->file[a->slot[B].file].size < 1050)
			return false;
		app_swap(a, (const struct range){A, 100, 1000}, (const struct range){B, 50, 1000});
		break;
	case 'Y':
		if (size < KERN_BLOCK)
			return false;
		append(a, B, 12000);
		app_swap(a, (const struct range){A, 0, KERN_BLOCK}, (const struct range){B, KERN_BLOCK, KERN_BLOCK});
		break;
	case 'V':
		app_peek(a, A);
		break;
	case 'W':
		app_let_go(a);
		break;
	case 'v':
	case 'y':
		app_writev(a, A, size, bytes(a, 4810), pieces, letter == 'y' ? 2 /* RWF_DSYNC */ : 0);
		break;
	case 't':
		app_truncate(a, A, size / 2);
		break;
	case 'T':
		app_truncate(a, A, size + 2500);
		break;
	case 'G':
		app_truncate(a, A, 4296);
		break;
	case 'F':
		app_fallocate(a, A, 0, size, 5000);
		break;
	case 'P':
		app_fallocate(a, A, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, size / 2);
		break;
	case 'f':
	case 'd':
		app_fsync(a, A, letter == 'd');
		break;
	case 'c':
		app_close(a, A);
		app_open(a, path, false);
		break;
	case 'k':
	case 'K':
	case 'E':
		app_service(a, letter == 'K' ? 2 : 1, letter == 'E');
		break;
	case '|':
		app_company(a, A);
		break;
	case 'Q':
		app_fill_log(a);
		break;
	case '1':
		app_fill_staging(a);
		break;
	case 'Z':
		app_idle(a);
		break;
	case 'n':
		need_b(a);
		break;
	case 'b':
		append(a, B, 64);
		break;
	case 'B':
		append(a, B, 9000);
		break;
	case 'g':
		app_fsync(a, B, false);
		break;
	case 'r':
		rename_a(a, strcmp(path, "N") == 0 ? "A" : "N");
		break;
	case 'R':
		app_rename(a, "B", path);
		strcpy(a->slot[B].path, path);
		app_close(a, A);
		a->slot[A] = a->slot[B];
		a->slot[B].fd = -1;
		break;
	case 'q':
		app_other(a, "E", KERN_DIR, true);
		rename_a(a, "E/A");
		break;
	case 'l':
		app_link(a, path, "L");
		break;
	case 'x':
		app_unlink(a, "B");
		app_close(a, B);
		break;
	case 'i':
		app_close(a, B);
		app_unlink(a, "B");
		break;
	case 'X':
		app_unlink(a, path);
		app_close(a, A);
		app_open(a, path, true);
		append(a, A, 100);
		break;
	case 'U':
		app_unlink(a, path);
		a->slot[A].path[0] = 0;
		append(a, A, 100);
		break;
	case '3' ... '9':
		operate_other(a, letter);
		break;
	case '2':
		s = app_open(a, path, false);
		append(a, s, 5000);
		app_close(a, s);
		break;
	case 'j':
		s = app_open_foreign(a, "J");
		append(a, s, 100);
		app_close(a, s);
		break;
	case 'D':
		app_other(a, "D", KERN_DIR, !there(a, "D"));
		break;
	case 's':
		app_other(a, "S", KERN_LINK, !there(a, "S"));
		break;
	case 'm':
		app_chmod(a, A, 0600 + (a->n & 7));
		break;
	case 'z':
		for (int i = 0; i < 28; i++)
			append(a, A, 64);
		break;
	default:
		FAIL("no operation '%c'", letter);
	}
	return true;
}
