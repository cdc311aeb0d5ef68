/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlsym(RTLD_NEXT, name) without dlsym. It looks several names up at once, in the time that dlsym takes for one. glibc
 * before 2.34 keeps dlsym in libdl, which most programs do not load. Every C library lists the loaded objects through
 * dl_iterate_phdr, in load order, which is search order.
 */
#include "real.h"

#include <elf.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>

extern int dl_iterate_phdr(int (*)(struct dl_phdr_info *, size_t, void *), void *) __attribute__((weak));

struct object {
	uintptr_t base;
	const Elf64_Sym *sym;
	const char *str;
	const Elf64_Half *versym;
	const uint32_t *gnu_hash;
	const uint32_t *sysv_hash;
};

struct name {
	const char *text;
	uint32_t gnu; /* its hash */
};

struct search {
	struct name name[PL_NEXT_MAX];
	void **found; /* of each; NULL: not yet */
	int n, left;
	bool behind_us;
};

static bool same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static struct name hashed(const char *text)
{
	struct name s = {text, 5381};

	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		s.gnu = s.gnu * 33 + *p;
	return s;
}

/* Of the older table, which few objects have alone. */
static uint32_t sysv_hash(const char *text)
{
	uint32_t v = 0;

	for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
		uint32_t high;

		v = (v << 4) + *p;
		high = v & 0xf0000000u;
		v = (v ^ (high >> 24)) & ~high;
	}
	return v;
}

/* glibc has relocated the addresses in the dynamic section, musl and the vdso have not. */
static uintptr_t address(const struct object *o, uintptr_t p)
{
	return p < o->base ? p + o->base : p;
}

static bool read_dynamic(struct object *o, const Elf64_Dyn *d)
{
	for (; d->d_tag != DT_NULL; d++) {
		uintptr_t p = address(o, d->d_un.d_ptr);

		if (d->d_tag == DT_SYMTAB)
			o->sym = (const Elf64_Sym *)p;
		else if (d->d_tag == DT_STRTAB)
			o->str = (const char *)p;
		else if (d->d_tag == DT_VERSYM)
			o->versym = (const Elf64_Half *)p;
		else if (d->d_tag == DT_GNU_HASH)
			o->gnu_hash = (const uint32_t *)p;
		else if (d->d_tag == DT_HASH)
			o->sysv_hash = (const uint32_t *)p;
	}
	return o->sym && o->str && (o->gnu_hash || o->sysv_hash);
}

/* A defined, visible function or variable of the default version. */
static bool fits(const struct object *o, const struct name *s, uint32_t i)
{
	const Elf64_Sym *y = &o->sym[i];
	unsigned type = ELF64_ST_TYPE(y->st_info), bind = ELF64_ST_BIND(y->st_info);

	if (y->st_shndx == SHN_UNDEF || (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_OBJECT) ||
	    (bind != STB_GLOBAL && bind != STB_WEAK))
		return false;
	if (o->versym && (o->versym[i] & 0x8000))
		return false;
	return same(o->str + y->st_name, s->text);
}

static uint32_t lookup_gnu(const struct object *o, const struct name *s)
{
	const uint32_t *h = o->gnu_hash;
	uint32_t buckets = h[0], first = h[1], words = h[2], shift = h[3];
	const uint64_t *bloom = (const uint64_t *)(h + 4);
	const uint32_t *bucket = (const uint32_t *)(bloom + words);
	const uint32_t *chain = bucket + buckets;
	uint64_t need = 1ull << (s->gnu % 64) | 1ull << ((s->gnu >> shift) % 64);
	uint32_t i;

	if (!buckets || (bloom[(s->gnu / 64) % words] & need) != need)
		return 0;
	i = bucket[s->gnu % buckets];
	if (i < first)
		return 0;
	for (;; i++) {
		uint32_t hash = chain[i - first];

		if ((hash | 1) == (s->gnu | 1) && fits(o, s, i))
			return i;
		if (hash & 1)
			return 0;
	}
}

static uint32_t lookup_sysv(const struct object *o, const struct name *s)
{
	const uint32_t *h = o->sysv_hash;
	uint32_t buckets = h[0];

	if (!buckets)
		return 0;
	for (uint32_t i = h[2 + sysv_hash(s->text) % buckets]; i; i = h[2 + buckets + i])
		if (fits(o, s, i))
			return i;
	return 0;
}

static const Elf64_Dyn *dynamic_of(const struct dl_phdr_info *info)
{
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			return (const Elf64_Dyn *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	return NULL;
}

static __attribute__((cold)) int visit(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	struct object o = {.base = info->dlpi_addr};
	const Elf64_Dyn *dynamic = dynamic_of(info);
	bool us = false;

	(void)size;
	for (int n = 0; n < info->dlpi_phnum; n++) {
		const Elf64_Phdr *p = &info->dlpi_phdr[n];
		uintptr_t here = (uintptr_t)&pl_table;

		if (p->p_type == PT_LOAD && here >= o.base + p->p_vaddr && here < o.base + p->p_vaddr + p->p_memsz)
			us = true;
	}
	if (us) {
		s->behind_us = true;
		return 0;
	}
	if (!s->behind_us || !dynamic || !read_dynamic(&o, dynamic))
		return 0;
	for (int k = 0; k < s->n; k++) {
		const uint32_t i = s->found[k]	? 0
				   : o.gnu_hash ? lookup_gnu(&o, &s->name[k])
						: lookup_sysv(&o, &s->name[k]);

		if (!i)
			continue;
		s->found[k] = (void *)(o.base + o.sym[i].st_value);
		if (ELF64_ST_TYPE(o.sym[i].st_info) == STT_GNU_IFUNC)
			s->found[k] = ((void *(*)(void))s->found[k])();
		s->left--;
	}
	return s->left == 0;
}

bool pl_elf_next(const char *const *names, int n, void **found)
{
	struct search s = {.found = found, .n = n, .left = n};

	for (int k = 0; k < n; k++) {
		s.name[k] = hashed(names[k]);
		found[k] = NULL;
	}
	if (!dl_iterate_phdr)
		return false;
	dl_iterate_phdr(visit, &s);
	return s.behind_us;
}

extern unsigned long getauxval(unsigned long type) __attribute__((weak));
extern const char *gnu_get_libc_version(void) __attribute__((weak));

/* The program, we, the C library and, with glibc, its loader. */
static int few(void)
{
	return gnu_get_libc_version ? 4 : 3;
}

/* Has code of it run before any constructor? Only a program's may. */
static bool begins_early(const struct dl_phdr_info *info)
{
	const Elf64_Dyn *d = dynamic_of(info);

	while (d && d->d_tag != DT_NULL && d->d_tag != DT_PREINIT_ARRAY)
		d++;
	return d && d->d_tag == DT_PREINIT_ARRAY;
}

static int count(struct dl_phdr_info *info, size_t size, void *n)
{
	(void)size;
	if (info->dlpi_addr && info->dlpi_addr == getauxval(AT_SYSINFO_EHDR))
		return 0;
	return ++*(int *)n > few() || begins_early(info);
}

bool pl_elf_few(void)
{
	int n = 0;

	return dl_iterate_phdr && getauxval && dl_iterate_phdr(count, &n) == 0;
}
