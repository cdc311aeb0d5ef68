/* SPDX-License-Identifier: Apache-2.0 */
#include "control/memory.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

#include "control/cxl.h"
#include "control/sysfs.h"

int sfs_platform_parse(const char *word, enum sfs_platform *platform)
{
	static const char *const words[] = {
		[SFS_PLATFORM_AUTO] = "auto", [SFS_PLATFORM_ADR] = "adr", [SFS_PLATFORM_EADR] = "eadr"};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strcmp(word, words[i]) == 0) {
			*platform = (enum sfs_platform)i;
			return 0;
		}
	return -EINVAL;
}

int sfs_machine_here(struct sfs_machine *m, struct sfs_why *why)
{
	const char *word = getenv("SPLITFS_PLATFORM");

	*m = (struct sfs_machine){.root = "", .platform = SFS_PLATFORM_AUTO};
	if (word && *word && sfs_platform_parse(word, &m->platform))
		return sfs_fail(why, -EINVAL, "SPLITFS_PLATFORM is '%s'; set it to auto, adr or eadr", word);
	return 0;
}

const char *sfs_memory_word(enum sfs_memory memory)
{
	static const char *const words[SFS_MEMORIES] = {
		[SFS_MEMORY_EMULATED] = "emulated", [SFS_MEMORY_VOLATILE] = "volatile", [SFS_MEMORY_VIRTIO] = "virtio",
		[SFS_MEMORY_UNSTATED] = "unstated", [SFS_MEMORY_GPF] = "gpf",		[SFS_MEMORY_ADR] = "adr",
		[SFS_MEMORY_EADR] = "eadr",
	};

	return words[memory];
}

bool sfs_memory_durable(enum sfs_memory memory)
{
	return memory >= SFS_MEMORY_GPF;
}

static void told(struct sfs_memory_range *r, enum sfs_memory memory, const char *why)
{
	r->memory = memory;
	snprintf(r->why, sizeof(r->why), "%s", why);
}

/* Does the kernel's command line make persistent memory of main memory (memmap=SIZE!START)? */
static bool memmap_given(const struct sfs_machine *m)
{
	char line[4096], *save = NULL;

	if (!sfs_sysfs_read(line, sizeof(line), "%s/proc/cmdline", m->root))
		return false;
	for (char *word = strtok_r(line, " \n", &save); word; word = strtok_r(NULL, " \n", &save))
		if (strncmp(word, "memmap=", 7) == 0 && strchr(word, '!'))
			return true;
	return false;
}

/* Calls `look` for each module of a region until one says true. */
static bool any_module(const struct sfs_machine *m, const char *region, bool (*look)(const char *module, const char *root))
{
	char mapping[128], module[PATH_MAX];

	for (unsigned i = 0; sfs_sysfs_read(mapping, sizeof(mapping), "%s/mapping%u", region, i); i++) {
		mapping[strcspn(mapping, ",")] = 0; /* nmem0,OFFSET,LENGTH,POSITION */
		if (strchr(mapping, '/') || !sfs_sysfs_resolve(module, "%s/sys/bus/nd/devices/%s", m->root, mapping))
			continue;
		if (look(module, m->root))
			return true;
	}
	return false;
}

/* An NVDIMM whose energy store is empty or missing: the kernel and the firmware know, and what is stored is lost. */
static bool not_armed(const char *module, const char *root)
{
	char flags[256];

	(void)root;
	return sfs_sysfs_read(flags, sizeof(flags), "%s/nfit/flags", module) && strstr(flags, "not_armed");
}

static bool device_has_gpf(const char *root, const char *name)
{
	char path[PATH_MAX];

	return !strchr(name, '/') && sfs_sysfs_resolve(path, "%s/sys/bus/cxl/devices/%s", root, name) && sfs_cxl_gpf(path);
}

/* Do all persistent CXL devices of this machine take part, and is there one? */
static bool all_have_gpf(const char *root)
{
	DIR *const d = sfs_sysfs_dir("%s/sys/bus/cxl/devices", root);
	const struct dirent *e;
	bool some = false, all = true;

	while (d && all && (e = readdir(d))) {
		if (strncmp(e->d_name, "pmem", 4) != 0 || !isdigit((unsigned char)e->d_name[4]))
			continue; /* pmem_regionN is no device */
		some = true;
		all = device_has_gpf(root, e->d_name);
	}
	if (d)
		closedir(d);
	return some && all;
}

/* Kernel 6.1 does not say which CXL device a module is: then all of them have to take part. */
static bool without_gpf(const char *module, const char *root)
{
	char name[64];

	if (!sfs_sysfs_read(name, sizeof(name), "%s/cxl/provider", module))
		return !all_have_gpf(root);
	return !device_has_gpf(root, name);
}

/* What the platform says of a region of NVDIMMs (ACPI: platform capabilities). */
static void platform_says(struct sfs_memory_range *r, const char *region)
{
	char domain[64];

	if (!sfs_sysfs_read(domain, sizeof(domain), "%s/persistence_domain", region))
		told(r, SFS_MEMORY_UNSTATED, "the platform states no persistence domain");
	else if (strcmp(domain, "cpu_cache") == 0)
		told(r, SFS_MEMORY_EADR, "the platform states the persistence domain cpu_cache");
	else if (strcmp(domain, "memory_controller") == 0)
		told(r, SFS_MEMORY_ADR, "the platform states the persistence domain memory_controller");
	else
		told(r, SFS_MEMORY_UNSTATED, "the platform states a persistence domain that is not known");
}

static void administrator_says(const struct sfs_machine *m, struct sfs_memory_range *r)
{
	if (r->memory < SFS_MEMORY_UNSTATED)
		return;
	if (m->platform == SFS_PLATFORM_EADR)
		told(r, SFS_MEMORY_EADR, "the administrator says so (SPLITFS_PLATFORM=eadr)");
	else if (m->platform == SFS_PLATFORM_ADR && r->memory == SFS_MEMORY_UNSTATED)
		told(r, SFS_MEMORY_ADR, "the administrator says so (SPLITFS_PLATFORM=adr)");
}

static bool is_type(const char *region, const char *type)
{
	char devtype[32];

	return sfs_sysfs_read(devtype, sizeof(devtype), "%s/devtype", region) && strcmp(devtype, type) == 0;
}

/* region: its directory in /sys/devices. */
static void look_at_region(const struct sfs_machine *m, const char *region, struct sfs_memory_range *r)
{
	if (!sfs_sysfs_read(r->provider, sizeof(r->provider), "%s/../provider", region))
		r->provider[0] = 0;
	if (strcmp(r->provider, "virtio-pmem") == 0)
		told(r, SFS_MEMORY_VIRTIO, "virtio-pmem: the host writes at fsync, and nothing before that is durable");
	else if (is_type(region, "nd_volatile"))
		told(r, SFS_MEMORY_VOLATILE, "the firmware says that it is volatile");
	else if (any_module(m, region, not_armed))
		told(r, SFS_MEMORY_VOLATILE, "one of its NVDIMMs is not armed: it could not save its content now");
	else if (strcmp(r->provider, "e820") == 0 && memmap_given(m))
		told(r, SFS_MEMORY_VOLATILE, "main memory, set aside on the kernel's command line (memmap=)");
	else if (strcmp(r->provider, "CXL") != 0)
		platform_says(r, region);
	else if (any_module(m, region, without_gpf))
		told(r, SFS_MEMORY_UNSTATED,
		     "a CXL device or its port takes no part in the global persistent flush, or could not be read");
	else
		told(r, SFS_MEMORY_GPF, "CXL devices and their ports take part in the global persistent flush");
	administrator_says(m, r);
}

/* The end of "/regionN" in a path; NULL when the path leads through no region. */
static char *behind_region(char *path)
{
	for (char *at = strstr(path, "/region"); at; at = strstr(at + 1, "/region")) {
		char *end = at + strlen("/region");

		if (!isdigit((unsigned char)*end))
			continue;
		while (isdigit((unsigned char)*end))
			end++;
		if (*end == 0 || *end == '/')
			return end;
	}
	return NULL;
}

/* The least of what a device lies on; depth ends it where somebody has made a circle of devices. */
static enum sfs_memory look_at_device(const struct sfs_machine *m, const char *device, unsigned depth)
{
	struct sfs_memory_range r = {0};
	char path[PATH_MAX], *end;
	enum sfs_memory least = SFS_MEMORIES, one;
	struct dirent *e;
	DIR *d;

	if (depth == 0 || !sfs_sysfs_resolve(path, "%s", device))
		return SFS_MEMORY_EMULATED;
	end = behind_region(path);
	if (end) {
		*end = 0;
		look_at_region(m, path, &r);
		return r.memory;
	}
	d = sfs_sysfs_dir("%s/slaves", path);
	while (d && (e = readdir(d))) {
		char slave[PATH_MAX];

		if (e->d_name[0] == '.' || !sfs_sysfs_resolve(slave, "%s/slaves/%s", path, e->d_name))
			continue;
		one = look_at_device(m, slave, depth - 1);
		least = one < least ? one : least;
	}
	if (d)
		closedir(d);
	return least == SFS_MEMORIES ? SFS_MEMORY_EMULATED : least;
}

enum sfs_memory sfs_memory_of_device(const struct sfs_machine *m, dev_t dev)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/sys/dev/block/%u:%u", m->root, major(dev), minor(dev));
	return look_at_device(m, path, 8);
}

enum sfs_memory sfs_memory_of_root(const struct sfs_machine *m, const struct sfs_root *root)
{
	const enum sfs_memory memory =
		root->dax || root->dax_unsynced ? sfs_memory_of_device(m, root->dev) : SFS_MEMORY_EMULATED;

	if (root->dax)
		return memory == SFS_MEMORY_EMULATED ? SFS_MEMORY_UNSTATED
						     : memory; /* mapped directly, and no region is known */
	return memory == SFS_MEMORY_VIRTIO ? memory : SFS_MEMORY_EMULATED;
}

struct list {
	struct sfs_memory_range *v;
	size_t n;
};

static struct sfs_memory_range *add(struct list *l, const char *name, const char *path)
{
	struct sfs_memory_range *bigger = reallocarray(l->v, l->n + 1, sizeof(*bigger)), *r;
	char size[32];

	if (!bigger)
		return NULL;
	l->v = bigger;
	r = &l->v[l->n++];
	memset(r, 0, sizeof(*r));
	snprintf(r->name, sizeof(r->name), "%s", name);
	if (sfs_sysfs_read(size, sizeof(size), "%s/size", path))
		r->bytes = strtoull(size, NULL, 0);
	return r;
}

static int add_region(const struct sfs_machine *m, struct list *l, const char *name, const char *path)
{
	struct sfs_memory_range *r;

	/* Others are reached through windows, and no file system is mapped there. */
	if (is_type(path, "nd_blk"))
		return 0;
	r = add(l, name, path);
	if (!r)
		return -ENOMEM;
	look_at_region(m, path, r);
	return 0;
}

static bool is_main_memory(const char *dax)
{
	char driver[PATH_MAX];

	return sfs_sysfs_resolve(driver, "%s/driver", dax) && strcmp(strrchr(driver, '/'), "/kmem") == 0;
}

/* Of a region in the list it is only another face. */
static int add_dax(const struct sfs_machine *m, struct list *l, const char *name, const char *path)
{
	struct sfs_memory_range *r;

	(void)m;
	if (strstr(path, "/ndbus"))
		return 0;
	r = add(l, name, path);
	if (!r)
		return -ENOMEM;
	snprintf(r->provider, sizeof(r->provider), "%s", strstr(path, "/hmem") ? "hmem" : "CXL");
	told(r, SFS_MEMORY_VOLATILE,
	     is_main_memory(path) ? "volatile memory that the kernel uses as main memory" : "volatile memory behind /dev/dax");
	return 0;
}

static int by_name(const void *a, const void *b)
{
	return strverscmp(((const struct sfs_memory_range *)a)->name, ((const struct sfs_memory_range *)b)->name);
}

static int each(const struct sfs_machine *m, struct list *l, const char *bus, const char *prefix,
		int (*one)(const struct sfs_machine *, struct list *, const char *name, const char *path))
{
	DIR *d = sfs_sysfs_dir("%s/sys/bus/%s/devices", m->root, bus);
	char path[PATH_MAX];
	struct dirent *e;
	int err = 0;

	while (d && !err && (e = readdir(d)))
		if (strncmp(e->d_name, prefix, strlen(prefix)) == 0 && isdigit((unsigned char)e->d_name[strlen(prefix)]) &&
		    sfs_sysfs_resolve(path, "%s/sys/bus/%s/devices/%s", m->root, bus, e->d_name))
			err = one(m, l, e->d_name, path);
	if (d)
		closedir(d);
	return err;
}

int sfs_memory_list(const struct sfs_machine *m, struct sfs_memory_range **ranges, size_t *n)
{
	struct list l = {0};
	int err = each(m, &l, "nd", "region", add_region);

	if (!err)
		err = each(m, &l, "dax", "dax", add_dax);
	if (err) {
		free(l.v);
		return err;
	}
	if (l.n)
		qsort(l.v, l.n, sizeof(*l.v), by_name);
	*ranges = l.v;
	*n = l.n;
	return 0;
}
